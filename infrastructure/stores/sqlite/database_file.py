"""The database file as a whole: copied while it is served, filled anew, put in place.

What takes a database's place is prepared beside it. One that is there is locked from the
beginning to the end, and its content replaced in one transaction: no process that opened it
meanwhile goes on with a file that has gone, and its mode, its owner and the links to it stay.
One that is not there must not be there at the end either.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from reservation_expiry.infrastructure.errors import DatabaseRefused, ForeignDatabase, StoreError
from reservation_expiry.infrastructure.machine.files import real_target, take_new_place
from reservation_expiry.infrastructure.stores.sqlite.database import Database, translate
from reservation_expiry.infrastructure.stores.sqlite.schema import (
    EVENTS_INDEX,
    refuse_what_is_not_ours,
)
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession

ALL_PAGES = -1  # in one step: one snapshot, however busy the writers are
IN_USE_TIMEOUT_SECONDS = 1.0
SIDE_FILES = ("-wal", "-shm", "-journal")

_HOLDS_EVENTS = (
    "SELECT EXISTS (SELECT 1 FROM events) OR (SELECT coalesce(max(position), 0) > 0 FROM log_head)"
)


class DatabaseInUse(DatabaseRefused):
    """Some process has the database open."""

    code = "database-in-use"


class Claim:
    """A database file that another one is to take the place of, or where none is yet."""

    def __init__(self, path: Path, connection: sqlite3.Connection | None) -> None:
        self.path = path
        self._connection = connection

    def holds_events(self) -> bool:
        """Whether there is something to lose; true if damage keeps that from being told."""
        if self._connection is None:
            return False
        try:
            if not self._connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
                return False
            return bool(self._connection.execute(_HOLDS_EVENTS).fetchone()[0])
        except sqlite3.Error:
            return True

    def put(self, part: Path, *, to_serve: bool) -> None:
        """Puts the database in the file `part` there, ready for servers or, for a copy that
        is to be kept, without a WAL. Raises DatabaseInUse if it has been made meanwhile."""
        try:
            if self._connection is None:
                _set_journal(part, to_serve)
                self._put_new(part)
                return
            _set_journal(part, False)
            self._connection.execute("PRAGMA journal_mode = DELETE")
            with closing(sqlite3.connect(part)) as source:
                source.backup(self._connection, pages=ALL_PAGES)
            if to_serve:
                self._connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise translate(error) from error

    def _put_new(self, part: Path) -> None:
        if not self.path.exists():
            for suffix in SIDE_FILES:  # of a database that has gone: SQLite would replay them
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        try:
            take_new_place(part, self.path)
        except FileExistsError:
            raise DatabaseInUse(
                f"{self.path} was made by another process meanwhile, and stays as it is"
            ) from None


@contextmanager
def claimed(path: Path) -> Iterator[Claim]:
    """Holds what is at `path` from now on: nobody else can open it for as long.

    Raises DatabaseInUse if somebody has it open, ForeignDatabase if it is not one of ours.
    """
    path = real_target(path)
    connection = _lock_alone(path) if path.exists() else None
    try:
        yield Claim(path, connection)
    finally:
        if connection is not None:
            connection.close()


def _lock_alone(path: Path) -> sqlite3.Connection:
    """A connection with a lock that any other open one stands in the way of, and that it
    keeps until it is closed."""
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=IN_USE_TIMEOUT_SECONDS, isolation_level=None)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        refuse_what_is_not_ours(connection, path)
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise DatabaseInUse(_in_use(path))
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise _why_not_locked(path, error) from error
        raise
    return connection


def _why_not_locked(path: Path, error: sqlite3.Error) -> DatabaseRefused | StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DatabaseInUse(_in_use(path))
    if code == sqlite3.SQLITE_NOTADB:
        return ForeignDatabase(f"{path} is not a SQLite database, and stays as it is")
    if code == sqlite3.SQLITE_CORRUPT:
        return DatabaseRefused(f"{path} is too damaged to be replaced: move it away first")
    return DatabaseRefused(f"{path} cannot be replaced ({translate(error)})")


def _in_use(path: Path) -> str:
    return f"{path} is in use: stop what serves it first"


def _set_journal(part: Path, to_serve: bool) -> None:
    with closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {'WAL' if to_serve else 'DELETE'}")


class DatabaseFile:
    """A database that is a file: it can be copied, and be replaced."""

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._database = database

    def copy_to(self, target: Path) -> None:
        """Copies the newest commit into one file at `target`, beside readers and writers."""
        copy(self._database, target)

    def claimed(self) -> AbstractContextManager[Claim]:
        return claimed(self.path)


def copy(database: Database, target: Path) -> None:
    """Copies the newest commit into one file at `target`, beside readers and writers."""
    with database.reader() as source, closing(sqlite3.connect(target)) as copied:
        source.backup(copied, pages=ALL_PAGES)


def fill(database: Database, batches: Iterable[list[tuple[Any, ...]]]) -> None:
    """Appends events, as they are, to an empty log that nobody else sees.

    Raises VersionConflict if two events have one version of one aggregate.
    """
    execute(database, "DROP INDEX events_by_originator")
    session = SqliteSession(database)
    try:
        for rows in batches:
            session.begin()
            if rows:
                session.append(rows)
            session.commit()
    finally:
        session.close()
    execute(database, EVENTS_INDEX)


def execute(database: Database, *statements: str) -> None:
    """Each by itself, on a connection of their own."""
    connection = database.connect()
    try:
        connection.execute("PRAGMA temp_store = FILE")  # a sort may be larger than memory
        for statement in statements:
            connection.execute(statement)
    except sqlite3.Error as error:
        raise translate(error) from error
    finally:
        connection.close()
