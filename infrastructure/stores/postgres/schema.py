"""The tables, and the way from any older schema to them.

They are made in the first schema of the connection's search path, which is all that the
role must own. An advisory lock lets any number of nodes start at once. A step in
MIGRATIONS is never edited once released: a new one is added behind it.
"""

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import errors

from reservation_expiry.infrastructure.errors import (
    DatabaseNotWritable,
    DatabaseRefused,
    ForeignDatabase,
    NewerSchema,
)
from reservation_expiry.infrastructure.stores.postgres.arrays import TYPES
from reservation_expiry.infrastructure.stores.postgres.database import NOW, Database, translate
from reservation_expiry.infrastructure.stores.sql.tables import REMADE, SERVERS, TOKENS, Kind, Table

MIGRATION_LOCK = 0x52455356  # "RESV", for pg_advisory_xact_lock
DAY_MS = 86_400_000

# Text compares by its bytes, as in SQLite: `COLLATE "C"`. Rows that change all the time
# have room on their pages to change in place, and are swept often.
_BUSY = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0"
_LOG_TABLES = f"""
CREATE TABLE events (
    position bigint PRIMARY KEY,
    originator_id text COLLATE "C" NOT NULL,
    originator_version bigint NOT NULL,
    topic text NOT NULL,
    state bytea NOT NULL,
    recorded_at_ms bigint NOT NULL,
    checksum bytea NOT NULL
);
CREATE UNIQUE INDEX events_by_originator ON events (originator_id, originator_version);
CREATE TABLE log_head (
    singleton integer PRIMARY KEY CHECK (singleton = 1),
    position bigint NOT NULL,
    checksum bytea NOT NULL,
    projected_position bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 500, {_BUSY});
INSERT INTO log_head VALUES (1, 0, '', 0);
CREATE TABLE writers (
    token text PRIMARY KEY,
    batch bigint NOT NULL,
    since_ms bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 500, {_BUSY});
"""
_PROJECTION_TABLES = f"""
CREATE TABLE IF NOT EXISTS alarms (
    id text COLLATE "C" PRIMARY KEY,
    next_run_time double precision,
    job_state bytea NOT NULL
) WITH (fillfactor = 80, {_BUSY});
CREATE INDEX IF NOT EXISTS alarms_by_next_run_time ON alarms (next_run_time);
CREATE TABLE IF NOT EXISTS reservations (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    status text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    expired_at_ms bigint,
    expiration_count bigint NOT NULL,
    alarm_at_ms bigint
) WITH (fillfactor = 80, {_BUSY});
CREATE TABLE IF NOT EXISTS objects (
    id text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    alarm_at_ms bigint
) WITH (fillfactor = 80, {_BUSY});
CREATE TABLE IF NOT EXISTS snapshots (
    id text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    state bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS owners (
    token text PRIMARY KEY,
    until_ms bigint NOT NULL,
    process text NOT NULL
);
CREATE TABLE IF NOT EXISTS ownerships (
    id text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    wanted integer NOT NULL
);
CREATE INDEX IF NOT EXISTS ownerships_by_owner ON ownerships (owner, wanted)
"""
# Who may ask: hashes of secrets, never the secrets.
TOKEN_TABLES = """
CREATE TABLE tokens (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    scope text NOT NULL,
    secret_sha256 bytea NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint
)
;
"""  # noqa: S105
# Which log it is, and what is left of one that was deleted; who serves it.
NAMESPACE_TABLES = """
ALTER TABLE log_head ADD COLUMN log_id text NOT NULL DEFAULT '';
ALTER TABLE log_head ADD COLUMN tombstone text;
UPDATE log_head SET log_id = left(replace(gen_random_uuid()::text, '-', ''), 16);
CREATE TABLE servers (
    token text COLLATE "C" PRIMARY KEY,
    process text NOT NULL,
    seen_at_ms bigint NOT NULL
)
;
"""
# Terms of holds. The read model may have been lost: then it is made as it was first.
TERMS_TABLES = f"""{_PROJECTION_TABLES};
ALTER TABLE reservations ADD COLUMN ended_at_ms bigint;
ALTER TABLE reservations ADD COLUMN owner text;
ALTER TABLE reservations ADD COLUMN terms text;
CREATE TABLE IF NOT EXISTS items (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    capacity bigint NOT NULL,
    held bigint NOT NULL,
    confirmed bigint NOT NULL
) WITH (fillfactor = 80, {_BUSY});
CREATE TABLE IF NOT EXISTS lines (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    item text NOT NULL,
    hold text NOT NULL,
    units bigint NOT NULL,
    due_at_ms bigint
);
CREATE INDEX IF NOT EXISTS lines_by_deadline ON lines (item, due_at_ms);
CREATE TABLE IF NOT EXISTS answers (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    fingerprint text NOT NULL,
    status bigint NOT NULL,
    version bigint,
    body bytea NOT NULL,
    at_ms bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_by_time ON answers (at_ms)
"""
# How attempts at alarms ended.
ATTEMPT_TABLES = """;
CREATE TABLE IF NOT EXISTS attempts (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    subject text NOT NULL,
    event_id text,
    scheduled_ms bigint NOT NULL,
    at_ms bigint NOT NULL,
    outcome text NOT NULL,
    retry_count bigint NOT NULL,
    lateness_ms bigint NOT NULL,
    duration_ms bigint,
    error text
)
"""
_VERSION_TABLE = "CREATE TABLE reservation_expiry_schema (version integer NOT NULL)"

_NAMES = ["events", "log_head", "writers", *(table.name for table in REMADE)]

# Released: never edited, whatever `sql/tables.py` comes to say.
MIGRATIONS: tuple[str, ...] = (
    _LOG_TABLES + _PROJECTION_TABLES,
    TOKEN_TABLES + NAMESPACE_TABLES + TERMS_TABLES + ATTEMPT_TABLES,
)

_TYPES: Mapping[Kind, str] = {**TYPES, "key": 'text COLLATE "C"'}
_CHANGES_ALL_THE_TIME = {"alarms", "reservations", "objects", "items"}


def remade(table: Table) -> tuple[str, ...]:
    busy = table.name in _CHANGES_ALL_THE_TIME
    return table.made(_TYPES, f" WITH (fillfactor = 80, {_BUSY})" if busy else "")


def migrate(database: Database, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Brings the schema to the newest version, making it if it is not there, and forgets
    writers that have long gone.

    Raises ForeignDatabase, NewerSchema or DatabaseNotWritable, and leaves everything as it
    was in each case.
    """
    with database.connect(patient=True) as connection:
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                _refuse_other_encodings(connection, database)
                _bring_up(connection, database, migrations)
        except (errors.InsufficientPrivilege, errors.InvalidSchemaName) as error:
            raise DatabaseNotWritable(_no_schema(connection, database)) from error
        except psycopg.Error as error:
            raise translate(error) from error


def _bring_up(
    connection: psycopg.Connection, database: Database, migrations: Sequence[str]
) -> None:
    version = _version(connection, database, len(migrations))
    if version == 0:
        _refuse_what_is_not_ours(connection, database)
        connection.execute(_VERSION_TABLE)
        connection.execute("INSERT INTO reservation_expiry_schema VALUES (0)")
    for step in migrations[version:]:
        connection.execute(step)
    gone = "SELECT bool_or(to_regclass(name) IS NULL) FROM unnest(%s::text[]) AS name"
    if connection.execute(gone, (_NAMES,)).fetchall()[0][
        0
    ]:  # else a role needs no right to make any
        for table in REMADE:
            for statement in remade(table):
                connection.execute(statement)
    if version < len(migrations):
        connection.execute("UPDATE reservation_expiry_schema SET version = %s", (len(migrations),))
    connection.execute(
        "DELETE FROM writers WHERE token IN (SELECT token FROM writers WHERE since_ms < %s"
        " FOR UPDATE SKIP LOCKED)",
        (connection.execute(NOW).fetchall()[0][0] - DAY_MS,),
    )


def _refuse_what_is_not_ours(connection: psycopg.Connection, database: Database) -> None:
    found = connection.execute(
        "SELECT tablename FROM pg_tables"
        " WHERE schemaname = current_schema() AND tablename = ANY(%s)",
        ([*_NAMES, TOKENS.name, SERVERS.name],),
    ).fetchall()
    if found:
        names = ", ".join(name for (name,) in found)
        raise ForeignDatabase(
            f"the schema of {database.address} has tables that are not reservation-expiry's "
            f"({names}): give it a schema of its own"
        )


def schema_version(database: Database) -> tuple[int, int]:
    """How far the schema has been migrated, 0 if it is not there, and the database's time
    in Unix milliseconds. Raises NewerSchema."""
    with database.lent() as connection:
        version = _version(connection, database, len(MIGRATIONS))
        return version, connection.execute(NOW).fetchall()[0][0]


def refuse_if_not_to_be_made(database: Database) -> None:
    """Raises DatabaseNotWritable if the role may make no tables."""
    with database.lent() as connection:
        may = connection.execute(
            "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)"
        ).fetchall()[0][0]
        _refuse_other_encodings(connection, database)
        if not may:
            raise DatabaseNotWritable(_no_schema(connection, database))


def _has_version(connection: psycopg.Connection) -> bool:
    select = "SELECT to_regclass('reservation_expiry_schema')"
    return connection.execute(select).fetchall()[0][0] is not None


def _version(connection: psycopg.Connection, database: Database, newest: int) -> int:
    if not _has_version(connection):
        return 0
    row = connection.execute("SELECT version FROM reservation_expiry_schema").fetchone()
    if row is None:
        raise ForeignDatabase(f"{database.address} has lost the version of its schema")
    version: int = row[0]
    if version > newest:
        raise NewerSchema(
            f"{database.address} has schema {version}; this release knows up to {newest}: "
            "use the newer release that wrote it"
        )
    return version


def _refuse_other_encodings(connection: psycopg.Connection, database: Database) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DatabaseRefused(
            f"{database.address} is in {encoding}: make a database WITH ENCODING 'UTF8'"
        )


def _no_schema(connection: psycopg.Connection, database: Database) -> str:
    role = connection.info.user
    return (
        f"{role} may not make tables in any schema of its search path in {database.address}: "
        f"give it one, CREATE SCHEMA {role} AUTHORIZATION {role}"
    )
