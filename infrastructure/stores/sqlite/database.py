"""Connections to one SQLite file, and the translation of what its driver raises.

WAL lets readers and the writer go on side by side; synchronous=FULL puts every commit
on disk before it returns. Readers come from a small pool, because opening one costs a
hundred times what a read does. A connection never survives a fork.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from reservation_expiry.infrastructure.errors import (
    ForeignDatabase,
    RowRefused,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreStopped,
    StoreUnavailable,
    VersionConflict,
)
from reservation_expiry.infrastructure.machine.forks import RefusesAfterFork
from reservation_expiry.infrastructure.stores.sql.read_transaction import ReadTransaction
from reservation_expiry.infrastructure.stores.sql.rows import PAGE_ROWS
from reservation_expiry.infrastructure.stores.sql.tables import EVENTS

BUSY_TIMEOUT_MS = 5_000
WRITER_CACHE_KIB = 16_384
READER_CACHE_KIB = 2_048
CACHED_STATEMENTS = 512  # multi-row statements come in one shape per batch size
# How large the WAL becomes, if no reader stays in the past: 16 MiB, or a sixteenth of what is
# free on a small disk, so that it can always be folded in.
WAL_AUTOCHECKPOINT_PAGES = 4_000
WAL_SHARE_OF_FREE_SPACE = 16
WAL_MIN_PAGES = 64
WAL_KEPT_BYTES = 64 * 1024 * 1024
PAGE_BYTES = 4_096


class Database(RefusesAfterFork):
    """Opens connections to the file at `path` and lends read-only ones.

    Not `durable` is for a file that nobody sees until it is whole, and then synced.

    Raises, from every method: StoreBusy, StoreFull, StoreUnavailable, as the driver's
    error is; ForkedProcess in a child of the process that made it.
    """

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        self.path = Path(path)
        self._synchronous = "FULL" if durable else "OFF"
        self._idle_readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        super().__init__()

    def connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        """A new connection in autocommit mode, for one thread at a time."""
        self.refuse_after_fork()
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=BUSY_TIMEOUT_MS / 1000,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=CACHED_STATEMENTS,
            )
            cache_kib = READER_CACHE_KIB if read_only else WRITER_CACHE_KIB
            connection.execute(f"PRAGMA cache_size = -{cache_kib}")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            pages = self._wal_pages()
            kept = WAL_KEPT_BYTES * pages // WAL_AUTOCHECKPOINT_PAGES
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            connection.execute(f"PRAGMA journal_size_limit = {kept}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA mmap_size = 0")  # or a bad sector would end the process
            if read_only:
                connection.execute("PRAGMA query_only = 1")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise ForeignDatabase(f"{self.path} is not a SQLite database") from error
            raise translate(error) from error
        return connection

    def _wal_pages(self) -> int:
        """After how many pages the WAL is folded in."""
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return WAL_AUTOCHECKPOINT_PAGES
        pages = disk.f_bavail * disk.f_frsize // (WAL_SHARE_OF_FREE_SPACE * PAGE_BYTES)
        return min(max(pages, WAL_MIN_PAGES), WAL_AUTOCHECKPOINT_PAGES)

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Lends a read-only connection; each statement sees the newest commit."""
        connection = self.take_reader()
        try:
            yield connection
        except sqlite3.Error as error:
            raise translate(error) from error
        finally:
            self.give_back(connection)

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Every row of one statement on a lent connection."""
        connection = self.take_reader()
        try:
            return connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise translate(error) from error
        finally:
            self.give_back(connection)

    def page(
        self, statement: str, parameters: Sequence[Any], key: str, limit_bytes: int
    ) -> list[Any]:
        """A page of events (`sql/rows.py`) on a lent connection."""
        with self.reader() as connection:
            return SqliteRows(connection).page(statement, parameters, key, limit_bytes)

    @contextmanager
    def read_transaction(self) -> Iterator[ReadTransaction]:
        """Reads that see one commit, however long they take."""
        with self.reader() as connection:
            connection.execute("BEGIN")
            try:
                yield ReadTransaction(SqliteRows(connection))
            finally:
                connection.execute("ROLLBACK")

    def take_reader(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreStopped("the database is closed")
        self.refuse_after_fork()
        try:
            return self._idle_readers.pop()
        except IndexError:
            return self.connect(read_only=True)

    def give_back(self, connection: sqlite3.Connection) -> None:
        self._idle_readers.append(connection)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Closes idle readers now, and those on loan as they come back."""
        self._closed = True
        while self._idle_readers:
            self._idle_readers.pop().close()

    def _after_fork_in_child(self) -> None:
        super()._after_fork_in_child()
        self._idle_readers = deque()


class SqliteRows:
    """Reads on one connection (`sql/rows.py`)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise translate(error) from error

    def page(
        self, statement: str, parameters: Sequence[Any], key: str, limit_bytes: int
    ) -> list[Any]:
        rows: list[Any] = []
        size = 0
        try:
            with closing(self._connection.execute(statement, parameters)) as cursor:
                for row in cursor:
                    size += len(row[EVENTS.large] or b"")
                    if rows and size > limit_bytes:
                        break
                    rows.append(row)
        except sqlite3.Error as error:
            raise translate(error) from error
        return rows

    def stream(
        self, statement: str, parameters: Sequence[Any] = (), page_rows: int = PAGE_ROWS
    ) -> Iterator[Any]:
        try:
            yield from self._connection.execute(statement, parameters)
        except sqlite3.Error as error:
            raise translate(error) from error


# What the driver says of one row or page, the file as a whole being there: its primary codes.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REFUSED = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH)
# And extended ones: a sector, or what the file system keeps of it, cannot be read.
_UNREADABLE = (
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_DATA,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
)
_TWICE = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)


def translate(error: sqlite3.Error) -> StoreError:
    """Our error for a driver's error."""
    extended = getattr(error, "sqlite_errorcode", None)
    text = str(error)
    if extended is None and isinstance(error, sqlite3.OperationalError):
        return StoreDamaged(f"a row cannot be decoded: {text}")  # says the driver, not SQLite
    code = (extended or 0) & 0xFF  # the primary code of an extended one
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy("another process holds the database's write lock")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("the disk is full")
    if extended in _TWICE:
        return VersionConflict(f"the event is in the log already: {text}")
    if code in _REFUSED or isinstance(error, sqlite3.DataError):
        return RowRefused(f"the database refuses a row: {text}")
    if code in _DAMAGED or extended in _UNREADABLE:
        return StoreDamaged(f"the database is damaged: {text}")
    return StoreUnavailable(f"the database cannot be used: {text}")
