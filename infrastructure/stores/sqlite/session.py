"""The writer's connection: what is SQLite's own about its transaction.

Each method is one statement however many rows it takes, because SQLite gives up the
interpreter lock at every statement, and many small ones make threads queue for it.
"""

import logging
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from reservation_expiry.infrastructure.errors import StoreBusy, StoreError, StoreFull, StoreStopped
from reservation_expiry.infrastructure.stores.sql.session import TAIL_EVENTS, Session, TailRow
from reservation_expiry.infrastructure.stores.sql.tables import Table
from reservation_expiry.infrastructure.stores.sqlite.database import (
    BUSY_TIMEOUT_MS,
    Database,
    SqliteRows,
    translate,
)

# SQLite takes at most 32,766 variables in one statement; no statement comes near.
MAX_ROWS_PER_STATEMENT = 1_000
LOCK_POLL_SECONDS = 0.001
ROOM_POLL_SECONDS = 0.5
COURTESY_SECONDS = 2 * LOCK_POLL_SECONDS

logger = logging.getLogger(__name__)

_TAILS = f"""
SELECT events.originator_id, originator_version, topic, CAST(state AS BLOB)
FROM json_each(?) AS wanted CROSS JOIN events ON events.originator_id = wanted.value
WHERE originator_version > {-TAIL_EVENTS} + (
    SELECT max(originator_version) FROM events WHERE originator_id = wanted.value)
ORDER BY events.originator_id, originator_version"""

_SET_ASIDE = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'damaged_*_[0-9]*'"
_MADE_BY = """
SELECT name, sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL
ORDER BY type = 'table' DESC"""


class SqliteSession(Session):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._data_version: list[tuple[int]] | None = None
        self._lacked_room_at: float | None = None  # when the WAL could last not be folded in

    def begin(self, *, appends: bool = True, wanted: Sequence[str] = ()) -> list[TailRow]:
        """Takes the write lock, waiting for it up to the busy timeout.

        SQLite has one writer at a time, whatever it writes. Its own wait sleeps longer and
        longer, up to 100 ms, so that a process which has waited loses to one that has just
        come. Ours asks again every millisecond, and lets others go first if they have
        written since its last turn.
        """
        if self._connection is None:
            self._open()
        if self._lacked_room_at is not None:
            self._fold_wal_in()
        if self._others_wrote():
            time.sleep(COURTESY_SECONDS)
        deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self._run("BEGIN IMMEDIATE")
                return self.tails(wanted) if wanted else []
            except StoreBusy:
                if time.monotonic() > deadline:
                    raise
            time.sleep(LOCK_POLL_SECONDS)

    def _open(self) -> None:
        """The one thing that a connection cannot set for itself alone is how the file keeps
        its journal, which any tool may have changed while nobody had it open."""
        self._connection = self._database.connect()
        try:
            if self._fetch("PRAGMA journal_mode") != [("wal",)]:
                self._run("PRAGMA journal_mode = WAL")
                logger.warning("%s had been taken out of WAL mode", self._database.path)
            self._run("PRAGMA busy_timeout = 0")
        except StoreError:
            self.close()
            raise

    def _fold_wal_in(self) -> None:
        """Gives back what the WAL takes of a disk that was full, before anything more is
        written: it would else grow into all that becomes free, and never be folded in again.
        Raises StoreFull if there is no room for that yet; asks again twice a second."""
        at = self._lacked_room_at
        if at is not None and time.monotonic() < at + ROOM_POLL_SECONDS:
            raise StoreFull("the disk is full")
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        self._lacked_room_at = None

    def _others_wrote(self) -> bool:
        before, self._data_version = self._data_version, self._fetch("PRAGMA data_version")
        return before != self._data_version

    def commit(self) -> None:
        self._run("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._run("ROLLBACK")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def set_aside_tables(self) -> list[str]:
        return [name for (name,) in self._fetch(_SET_ASIDE)]

    def set_aside(self, table: str, mark: int) -> None:
        """Nothing is dropped, for SQLite would read a damaged page to free it. Indexes stay
        with the old table, and keep their names."""
        made = self._fetch(_MADE_BY, (table,))
        self._run(f"ALTER TABLE {table} RENAME TO damaged_{table}_{mark}")
        for name, statement in made:
            if name != table:
                _, _, rest = statement.partition(" ON ")
                statement = f"CREATE INDEX {table}_index_{mark} ON {rest}"
            self._run(statement)

    def tails(self, aggregate_ids: Sequence[str]) -> list[TailRow]:
        return self._fetch(_TAILS, (_json(aggregate_ids),))

    def _among(self, column: str, keys: Sequence[str]) -> tuple[str, object]:
        return f"{column} IN (SELECT value FROM json_each(?))", _json(keys)

    def _put(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        row = f"({', '.join('?' * len(table.columns))})"
        for start in range(0, len(rows), MAX_ROWS_PER_STATEMENT):
            chunk = rows[start : start + MAX_ROWS_PER_STATEMENT]
            values = ", ".join([row] * len(chunk))
            statement = f"{table.insert}VALUES {values}{table.on_conflict}"
            self._run(statement, [value for row in chunk for value in row])

    def _rows(self) -> SqliteRows:
        return SqliteRows(self._in_use())

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        try:
            return self._in_use().execute(statement, parameters).rowcount
        except sqlite3.Error as error:
            ours = translate(error)
            if isinstance(ours, StoreFull):
                self._lacked_room_at = time.monotonic()
            raise ours from error

    def _in_use(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreStopped("there is no transaction")
        return self._connection


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()
