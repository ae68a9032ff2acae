"""A whole log into a new database file, which is put in place when it is there and verified."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from reservation_expiry.infrastructure.errors import ImportRefused
from reservation_expiry.infrastructure.machine.files import make_folder, part_beside
from reservation_expiry.infrastructure.stores.address import Address, refuse_no_file
from reservation_expiry.infrastructure.stores.row_types import EventRow
from reservation_expiry.infrastructure.stores.sql.tables import ALARMS
from reservation_expiry.infrastructure.stores.sqlite.database import Database
from reservation_expiry.infrastructure.stores.sqlite.database_file import (
    Claim,
    claimed,
    execute,
    fill,
)
from reservation_expiry.infrastructure.stores.sqlite.schema import migrate, remade
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession

Verified = TypeVar("Verified")


class FileFilling:
    """Fills a part beside the claimed file; nobody else opens the part. Indexes are made at
    the end, in one sort each: kept up row by row they cost more than the rows."""

    def __init__(self, claim: Claim, part: Path) -> None:
        self._claim = claim
        self._part = part
        self._database = Database(part, durable=False)
        self._session = SqliteSession(self._database)

    def append(self, batches: Iterable[list[EventRow]]) -> None:
        migrate(self._database)
        execute(self._database, *(f"DROP INDEX {name}" for name, _ in ALARMS.indexes))
        fill(self._database, batches)

    @contextmanager
    def transaction(self) -> Iterator[SqliteSession]:
        """One of many: a part of the work at a time, for a whole log's would not fit in memory."""
        self._session.begin()
        try:
            yield self._session
            self._session.commit()
        except BaseException:
            self._session.rollback()
            raise

    def finish(self, verify: Callable[[Address], Verified]) -> Verified:
        """Puts the file in place if it verifies."""
        self._session.close()
        execute(self._database, *remade(ALARMS))
        self._database.close()
        verified = verify(self._part)
        self._claim.put(self._part, to_serve=True)
        return verified

    def close(self) -> None:
        self._session.close()
        self._database.close()


@contextmanager
def filling(path: Path) -> Iterator[FileFilling]:
    """Holds the place of a file from now on. Raises ImportRefused if events are there."""
    refuse_no_file(path)
    make_folder(path.parent)
    with claimed(path) as claim, part_beside(claim.path) as part:
        if claim.holds_events():
            raise ImportRefused(f"{claim.path} holds events already: import into a new file")
        one = FileFilling(claim, part)
        try:
            yield one
        finally:
            one.close()
