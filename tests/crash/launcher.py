"""`reservation-expiry` with a fault built in: kill -9 of itself at a chosen point.

Runs the product's own command line after replacing methods of the stores' sessions in
this process; workers are forked from it, so they have the fault too. The product has no
switch for it. Four variables, read here only:

    CRASH_POINT   "before-commit" or "after-commit", and of what: "hold", "claim", "settlement"
    CRASH_VICTIM  "server" (every process of it at once, the default) or "worker"
    CRASH_MARKER  a file that gets one byte just before each kill
    CRASH_TIMES   how many kills there may be, 1 unless told otherwise; after them
                  everything works, so that what is started next lives
"""

import os
import signal
from pathlib import Path
from typing import Any

from reservation_expiry.api.cli import main
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.stores.postgres.session import PostgresSession
from reservation_expiry.infrastructure.stores.sql.session import Session
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession

CONTENTS = {"reservation.Held": "hold", "reservation.Expired": "settlement"}
CLAIM = "claim"


class Saboteur:
    """Watches what each transaction writes, and strikes around its commit."""

    def __init__(self, point: str, victim: str, marker: Path, times: int) -> None:
        self._moment, self._wanted = point.split()
        self._victim = victim
        self._marker = marker
        self._times = times
        self._contents: set[str] = set()  # of the transaction under way; one writer thread

    def install(self) -> None:
        for session_class in (SqliteSession, PostgresSession):
            self._install_in(session_class)

    def _install_in(self, session_class: type[Session]) -> None:
        begin, append = session_class.begin, session_class.append
        put_alarms, commit = session_class.put_alarms, session_class.commit

        def noted_begin(session: Session, **options: Any) -> Any:
            self._contents.clear()
            return begin(session, **options)

        def noted_append(session: Session, rows: list[tuple]) -> None:
            append(session, rows)
            self._contents.update(CONTENTS[row[3]] for row in rows if row[3] in CONTENTS)

        def noted_put_alarms(session: Session, rows: list[tuple]) -> None:
            put_alarms(session, rows)
            if any(alarm_row.decode(row[2]).token for row in rows):
                self._contents.add(CLAIM)

        def fatal_commit(session: Session) -> None:
            self._strike_at("before-commit")
            commit(session)
            self._strike_at("after-commit")

        session_class.begin, session_class.append = noted_begin, noted_append
        session_class.put_alarms, session_class.commit = noted_put_alarms, fatal_commit

    def _strike_at(self, moment: str) -> None:
        if moment != self._moment or self._wanted not in self._contents:
            return
        with self._marker.open("ab") as marker:
            if marker.tell() >= self._times:
                return
            marker.write(b"x")
        if self._victim == "server":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Saboteur(
        os.environ["CRASH_POINT"],
        os.environ.get("CRASH_VICTIM", "server"),
        Path(os.environ["CRASH_MARKER"]),
        int(os.environ.get("CRASH_TIMES", "1")),
    ).install()
    main()
