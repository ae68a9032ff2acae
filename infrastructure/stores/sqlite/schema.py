"""The tables, and the way from any older file to them.

`PRAGMA application_id` says that a file is ours and `PRAGMA user_version` how far it
has been migrated. A step in MIGRATIONS is never edited once released: a new one is
added behind it.
"""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from reservation_expiry.infrastructure.errors import (
    DatabaseNotWritable,
    ForeignDatabase,
    NewerSchema,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from reservation_expiry.infrastructure.machine.files import make_folder, make_private
from reservation_expiry.infrastructure.stores.sql.tables import REMADE, Kind, Table
from reservation_expiry.infrastructure.stores.sqlite.database import Database, translate

APPLICATION_ID = 0x52455356  # "RESV"

# `events` is the log and the only truth; the rest is projected from it.
#   log_head: the highest position ever committed, the checksum of that event, and how far
#     the projections have come. A log that ends before it has lost its tail.
EVENTS_INDEX = (
    "CREATE UNIQUE INDEX events_by_originator ON events (originator_id, originator_version)"
)
LOG_TABLES = f"""
CREATE TABLE events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    originator_id TEXT NOT NULL,
    originator_version INTEGER NOT NULL,
    topic TEXT NOT NULL,
    state BLOB NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    checksum BLOB NOT NULL
);
{EVENTS_INDEX};
CREATE TABLE log_head (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    position INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    projected_position INTEGER NOT NULL
);
INSERT INTO log_head VALUES (1, 0, x'', 0);
"""
#   alarms: APScheduler's table shape. next_run_time is Unix seconds, NULL when parked.
#   reservations: what GET and lists answer from.
PROJECTION_TABLES = """
CREATE TABLE IF NOT EXISTS alarms (
    id VARCHAR(191) NOT NULL PRIMARY KEY,
    next_run_time FLOAT,
    job_state BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alarms_by_next_run_time ON alarms (next_run_time);
CREATE TABLE IF NOT EXISTS reservations (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    expired_at_ms INTEGER,
    expiration_count INTEGER NOT NULL,
    alarm_at_ms INTEGER
) WITHOUT ROWID;
"""

#   objects, snapshots: how far each durable object is, and its storage as it was once.
OBJECT_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    alarm_at_ms INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    state BLOB NOT NULL
);
"""
# Neither log nor projection: which process runs which object, and until when it may.
OWNER_TABLES = """
CREATE TABLE IF NOT EXISTS owners (
    token TEXT NOT NULL PRIMARY KEY,
    until_ms INTEGER NOT NULL,
    process TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ownerships (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    wanted INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ownerships_by_owner ON ownerships (owner, wanted);
"""
# Who may ask: hashes of secrets, never the secrets.
TOKEN_TABLES = """
CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    secret_sha256 BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER
) WITHOUT ROWID;
"""  # noqa: S105
# Which log it is, and what is left of one that was deleted; who serves it.
NAMESPACE_TABLES = """
ALTER TABLE log_head ADD COLUMN log_id TEXT NOT NULL DEFAULT '';
ALTER TABLE log_head ADD COLUMN tombstone TEXT;
UPDATE log_head SET log_id = lower(hex(randomblob(8)));
CREATE TABLE servers (
    token TEXT NOT NULL PRIMARY KEY,
    process TEXT NOT NULL,
    seen_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
"""
# Terms of holds. The read model may have been lost: then it is made as it was first.
TERMS_TABLES = f"""{PROJECTION_TABLES}
ALTER TABLE reservations ADD COLUMN ended_at_ms INTEGER;
ALTER TABLE reservations ADD COLUMN owner TEXT;
ALTER TABLE reservations ADD COLUMN terms TEXT;
CREATE TABLE IF NOT EXISTS items (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    held INTEGER NOT NULL,
    confirmed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lines (
    id TEXT NOT NULL PRIMARY KEY,
    item TEXT NOT NULL,
    hold TEXT NOT NULL,
    units INTEGER NOT NULL,
    due_at_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lines_by_deadline ON lines (item, due_at_ms);
CREATE TABLE IF NOT EXISTS answers (
    id TEXT NOT NULL PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL,
    version INTEGER,
    body BLOB NOT NULL,
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_time ON answers (at_ms);
"""
# How attempts at alarms ended.
ATTEMPT_TABLES = """
CREATE TABLE IF NOT EXISTS attempts (
    id TEXT NOT NULL PRIMARY KEY,
    subject TEXT NOT NULL,
    event_id TEXT,
    scheduled_ms INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    retry_count INTEGER NOT NULL,
    lateness_ms INTEGER NOT NULL,
    duration_ms INTEGER,
    error TEXT
) WITHOUT ROWID;
"""
# Released: never edited, whatever `sql/tables.py` comes to say.
MIGRATIONS: tuple[str, ...] = (
    LOG_TABLES + PROJECTION_TABLES,
    OBJECT_TABLES + OWNER_TABLES,
    TOKEN_TABLES + NAMESPACE_TABLES + TERMS_TABLES + ATTEMPT_TABLES,
)

TYPES: Mapping[Kind, str] = {
    "key": "TEXT",
    "text": "TEXT",
    "integer": "INTEGER",
    "seconds": "FLOAT",
    "bytes": "BLOB",
}


def remade(table: Table) -> tuple[str, ...]:
    """Rows are kept in the order of their keys, unless they may be large."""
    return table.made(TYPES, "" if table.large else " WITHOUT ROWID")


def migrate(database: Database, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Brings the file to the newest schema, creating it if it is not there.

    Projection tables that have gone are made anew, empty. Raises ForeignDatabase,
    NewerSchema or DatabaseNotWritable, and leaves the file as it was in each case;
    StoreBusy if another process keeps the lock.
    """
    make_file(database.path)
    try:
        connection = database.connect()
    except StoreError as error:
        raise _why_not_opened(database.path, error) from error
    try:
        version = refuse_what_is_not_ours(connection, database.path, len(migrations))
        if version == len(migrations) and _is_complete(connection):
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        version = refuse_what_is_not_ours(connection, database.path, len(migrations))
        for step in migrations[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        for table in REMADE:
            for statement in remade(table):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise _why_not_opened(database.path, translate(error)) from error
    finally:
        connection.close()


def _is_complete(connection: sqlite3.Connection) -> bool:
    """Whether nothing is to be made: the projections are there, and WAL is on."""
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    missing = {table.name for table in REMADE} - {name for (name,) in found}
    journal_mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return not missing and journal_mode == "wal"


def schema_version(database: Database) -> int:
    """How far the file has been migrated. Raises ForeignDatabase or NewerSchema."""
    with database.reader() as connection:
        return refuse_what_is_not_ours(connection, database.path)


def make_file(path: Path) -> None:
    """An empty file to begin with, for its owner alone, as SQLite's own beside it will be;
    its folder too. Raises DatabaseNotWritable."""
    try:
        make_folder(path.parent)
        make_private(path)
    except OSError as error:
        raise DatabaseNotWritable(f"{path} cannot be made: {_reason(error)}") from error


def refuse_if_not_writable(database: Database) -> None:
    """Raises DatabaseNotWritable, naming the file, if what is there cannot be written.

    SQLite opens a file that it may not write for reading, and says so at the first write;
    which is tried, and taken back.
    """
    path = database.path
    for part in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if part.exists() and not os.access(part, os.R_OK | os.W_OK):
            raise DatabaseNotWritable(f"{part} cannot be written by this account")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DatabaseNotWritable(f"the folder {path.parent} cannot be written by this account")
    try:
        with closing(database.connect()) as connection:
            version = refuse_what_is_not_ours(connection, path)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("ROLLBACK")
    except StoreError as error:
        raise _why_not_opened(path, error) from error
    except sqlite3.Error as error:
        ours = translate(error)
        if not isinstance(ours, StoreBusy | StoreFull):  # those may be over in a moment
            raise _why_not_opened(path, ours) from error


def refuse_if_not_to_be_made(path: Path) -> None:
    """Raises DatabaseNotWritable if no file can be made there. May make its folder."""
    try:
        make_folder(path.parent)
    except OSError as error:
        raise DatabaseNotWritable(f"{path} cannot be made: {_reason(error)}") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DatabaseNotWritable(f"the folder {path.parent} cannot be written by this account")


def _reason(error: OSError) -> str:
    return f"{error.filename}: {(error.strerror or str(error)).lower()}"


def refuse_what_is_not_ours(
    connection: sqlite3.Connection, path: Path, newest: int = len(MIGRATIONS)
) -> int:
    """The schema version of the file; 0 if it is new and empty. Raises ForeignDatabase or
    NewerSchema."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if application_id != APPLICATION_ID and (application_id or _has_tables(connection)):
        raise ForeignDatabase(f"{path} is a SQLite database, but not one of reservation-expiry")
    if version > newest:
        raise NewerSchema(
            f"{path} has schema {version}; this release knows up to {newest}: "
            "use the newer release that wrote it"
        )
    return version


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])


def _statements(script: str) -> list[str]:
    """The statements of a script, without comments. (executescript would commit first.)"""
    return [part.strip() for part in script.split(";") if part.strip()]


def _why_not_opened(path: Path, error: StoreError) -> Exception:
    if isinstance(error, StoreUnavailable):
        return DatabaseNotWritable(f"{path} cannot be opened for writing ({error})")
    return error
