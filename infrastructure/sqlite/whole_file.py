"""The database file as a whole: copied while it is served, filled anew, put in place.

A database in WAL mode is up to three files. Whatever takes a database's place does so
only when nobody has that open, and never beside a WAL that belongs to another file:
SQLite would replay it.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from infrastructure.errors import DatabaseRefused
from infrastructure.sqlite.database import Database, translate
from infrastructure.sqlite.schema import EVENTS_INDEX
from infrastructure.sqlite.session import SqliteSession

ALL_PAGES = -1  # in one step: one snapshot, however busy the writers are
IN_USE_TIMEOUT_SECONDS = 1.0


class DatabaseInUse(DatabaseRefused):
    """Some process has the database open."""

    code = "database-in-use"


def copy(database: Database, target: Path) -> None:
    """Copies the newest commit into one file at `target`, beside readers and writers."""
    with database.reader() as source:
        copied = sqlite3.connect(target, isolation_level=None)
        try:
            source.backup(copied, pages=ALL_PAGES)
            copied.execute("PRAGMA journal_mode = DELETE")  # no WAL beside it
        finally:
            copied.close()


def fill(database: Database, batches: Iterable[list[tuple]]) -> None:
    """Appends events, as they are, to an empty log that nobody else sees.

    The index is made at the end, in one sort: kept up row by row it would cost more than
    all the rest. Raises VersionConflict if two events have one version of one aggregate.
    """
    _execute(database, "DROP INDEX events_by_originator")
    session = SqliteSession(database)
    try:
        for rows in batches:
            session.begin()
            if rows:
                session.append(rows)
            session.commit()
    finally:
        session.close()
    _execute(database, EVENTS_INDEX)


def _execute(database: Database, statement: str) -> None:
    connection = database.connect()
    try:
        connection.execute("PRAGMA temp_store = FILE")  # a sort may be larger than memory
        connection.execute(statement)
    except sqlite3.Error as error:
        raise translate(error) from error
    finally:
        connection.close()


def retire(path: Path) -> None:
    """Makes way for another file at `path`: nobody has it open, no WAL is left beside it.

    Raises DatabaseInUse. A path with no file, or with no database in it, is ready.
    """
    if path.exists():
        try:
            _lock_alone(path)
        except sqlite3.OperationalError as error:
            raise DatabaseInUse(f"{path} is in use: stop what serves it first") from error
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise translate(error) from error
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _lock_alone(path: Path) -> None:
    """Takes and gives back a lock that any other open connection stands in the way of."""
    connection = sqlite3.connect(path, timeout=IN_USE_TIMEOUT_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise sqlite3.OperationalError("the WAL could not be folded in")
    finally:
        connection.close()
