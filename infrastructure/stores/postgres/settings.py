"""What a session of ours is set to, whatever the server, database, role or environment say.

Each promise that rests on a setting has it set here, in the session itself, which nothing
outranks: not ALTER SYSTEM, ALTER DATABASE or ALTER ROLE, nor `options=`, PGOPTIONS or a
service file, all of which may say whatever else they like. What no session can set is
looked at when a server starts (`doubts`).
"""

from dataclasses import dataclass

import psycopg

STATEMENT_MS = 6_000
LOCK_MS = 4_000
IDLE_IN_TRANSACTION_MS = 3_000
PATIENT_IDLE_MS = 60_000
UNANSWERED_MS = 5_000  # of what the network does not acknowledge

# `tcp_user_timeout` ends a backend whose answer a frozen node does not take: while it sends,
# no other limit is looked at.
_NETWORK = {
    "tcp_user_timeout": UNANSWERED_MS - 1_000,
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 2,
}
LIMITS = {
    **_NETWORK,
    "statement_timeout": STATEMENT_MS,
    "lock_timeout": LOCK_MS,
    "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_MS,
}
PATIENT_LIMITS = {
    **_NETWORK,
    "statement_timeout": 0,
    "lock_timeout": 0,
    "idle_in_transaction_session_timeout": PATIENT_IDLE_MS,
}

_SETTINGS = {
    # A look at the log's lock, and what follows it, sees what was committed before.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    # Rows that a policy hides are an error, and not rows that are not there.
    "row_security": "off",
    # How our literals are read, and how values come back where they come as text.
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
# A session of ours waits as long as it likes, and limits its transactions otherwise.
_SINCE = {140_000: {"idle_session_timeout": "0"}, 170_000: {"transaction_timeout": "0"}}
# What was answered is on disk, here and on a synchronous standby: `off`, `local` and
# `remote_write` promise less, and `remote_apply` more, which is left to whoever set it.
_SYNCHRONOUS_COMMIT = """set_config('synchronous_commit', CASE
    current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on'
    END, false)"""

_OURS = "reservation_expiry_schema"  # a table that every schema of ours has
_WHERE = f"""
SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('{_OURS}')
UNION ALL SELECT quote_ident(current_schema()) WHERE to_regclass('{_OURS}') IS NULL"""
_GIVEN = "SELECT source = 'client' FROM pg_settings WHERE name = 'search_path'"
# Namespaces have schemas of their own, and are asked for by name.
_OTHERS = f"""
SELECT relnamespace::regnamespace::text FROM pg_class
WHERE relname = '{_OURS}' AND relkind = 'r' AND relnamespace::regnamespace::text <> %s
    AND NOT starts_with(relnamespace::regnamespace::text, 'rx_')
    AND has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')
ORDER BY 1"""

_DOUBTS = {
    ("fsync", "off"): "a crash of its machine may destroy the database",
    ("full_page_writes", "off"): "a crash of its machine may damage pages",
    ("zero_damaged_pages", "on"): "rows on damaged pages vanish without an error",
    ("ignore_checksum_failure", "on"): "damaged pages are taken for whole ones",
}


@dataclass(frozen=True)
class Place:
    """The schema that a process works in, as SQL has its name; None if there is none.

    `others` are schemas that it might have been instead, for nobody has said which.
    """

    schema: str | None
    others: tuple[str, ...] = ()


def apply(connection: psycopg.Connection, limits: dict[str, int], schema: str | None) -> None:
    """Sets all of it, and the search path to the schema alone. Two round trips: the first
    sees to it that a statement timeout of somebody else's does not end the second."""
    connection.execute(f"SET statement_timeout = {limits['statement_timeout']}")
    settings = {**limits, **_SETTINGS}
    for version, since in _SINCE.items():
        if connection.info.server_version >= version:
            settings |= since
    calls = [f"set_config('{name}', '{value}', false)" for name, value in settings.items()]
    if schema is not None:
        path = f"{schema}, pg_temp".replace("'", "''")
        calls.append(f"set_config('search_path', '{path}', false)")
    connection.execute(f"SELECT {_SYNCHRONOUS_COMMIT}, {', '.join(calls)}")


def find_place(connection: psycopg.Connection) -> Place:
    """Where the search path leads to: our tables, or where they would be made."""
    found = connection.execute(_WHERE).fetchone()
    schema = None if found is None else found[0]
    if schema is None or connection.execute(_GIVEN).fetchall()[0][0]:
        return Place(schema)
    return Place(schema, tuple(row[0] for row in connection.execute(_OTHERS, (schema,))))


def doubts(connection: psycopg.Connection) -> list[str]:
    """Settings of the server with which it does not do what is promised, in words."""
    asked = ", ".join(f"current_setting('{name}', true)" for name, _ in _DOUBTS)
    (values,) = connection.execute(f"SELECT {asked}").fetchall()
    return [
        f"the database server runs with {name} = {bad}: {consequence}"
        for ((name, bad), consequence), value in zip(_DOUBTS.items(), values, strict=True)
        if value == bad
    ]
