"""The tables, each described once: what is made, written and read follows from here.

Migrations that were released are frozen text in each store's `schema.py`; a test holds what
they make against these descriptions. SQLAlchemy could describe tables, too, but takes longer
to be imported than most commands take to run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Literal

Kind = Literal["key", "text", "integer", "seconds", "bytes"]
"""`key` is text that is compared by its bytes; `seconds` are Unix time with a fraction."""

PYTHON_TYPE: Mapping[Kind, type] = {
    "key": str,
    "text": str,
    "integer": int,
    "seconds": float,
    "bytes": bytes,
}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    required: bool = True

    @property
    def read(self) -> str:
        """As a SELECT has it: SQLite keeps text in a column of bytes, if somebody puts it there."""
        if self.kind != "bytes":
            return self.name
        return f"CAST({self.name} AS BLOB) AS {self.name}"


@dataclass(frozen=True, eq=False)
class Table:
    """The first column is the key. Rows of a table that is no log take the place of older
    ones with their key. `indexes` are (name, columns)."""

    name: str
    columns: tuple[Column, ...]
    indexes: tuple[tuple[str, str], ...] = ()
    is_log: bool = False

    @property
    def key(self) -> str:
        return self.columns[0].name

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def large(self) -> int | None:
        """Where in a row the value is that may have megabytes, if there is one."""
        return self.names.index("state") if "state" in self.names else None

    @cached_property
    def selected(self) -> str:
        """All columns, in the order of a row, as a SELECT has them."""
        return ", ".join(column.read for column in self.columns)

    @cached_property
    def python_types(self) -> tuple[frozenset[type], ...]:
        """The types that a value may have, column by column."""
        return tuple(
            frozenset((PYTHON_TYPE[c.kind], *(() if c.required else (NoneType,))))
            for c in self.columns
        )

    @cached_property
    def insert(self) -> str:
        """`INSERT INTO table (columns) `, to be followed by the rows."""
        return f"INSERT INTO {self.name} ({', '.join(self.names)}) "

    @cached_property
    def on_conflict(self) -> str:
        if self.is_log:
            return ""
        news = ", ".join(f"{name} = excluded.{name}" for name in self.names[1:])
        return f" ON CONFLICT ({self.key}) DO UPDATE SET {news}"

    def made(self, types: Mapping[Kind, str], options: str = "") -> tuple[str, ...]:
        """The statements that make it, unless it is there, with what a store calls the kinds."""
        columns = [
            f"{column.name} {types[column.kind]}"
            + (" NOT NULL" if column.required else "")
            + (" PRIMARY KEY" if column.name == self.key else "")
            for column in self.columns
        ]
        table = f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(columns)}){options}"
        indexes = (
            f"CREATE INDEX IF NOT EXISTS {name} ON {self.name} ({on})" for name, on in self.indexes
        )
        return (table, *indexes)


EVENTS = Table(
    "events",
    (
        Column("position", "integer"),
        Column("originator_id", "key"),
        Column("originator_version", "integer"),
        Column("topic", "text"),
        Column("state", "bytes"),
        Column("recorded_at_ms", "integer"),
        Column("checksum", "bytes"),
    ),
    is_log=True,
)
# APScheduler's table shape. `next_run_time` is NULL when the alarm is parked.
ALARMS = Table(
    "alarms",
    (
        Column("id", "key"),
        Column("next_run_time", "seconds", required=False),
        Column("job_state", "bytes"),
    ),
    indexes=(("alarms_by_next_run_time", "next_run_time"),),
)
# What GET and lists answer from.
RESERVATIONS = Table(
    "reservations",
    (
        Column("name", "key"),
        Column("version", "integer"),
        Column("status", "text"),
        Column("created_at_ms", "integer"),
        Column("expires_at_ms", "integer"),
        Column("expired_at_ms", "integer", required=False),
        Column("expiration_count", "integer"),
        Column("alarm_at_ms", "integer", required=False),
        Column("ended_at_ms", "integer", required=False),
        Column("owner", "text", required=False),
        Column("terms", "text", required=False),
    ),
)
# How many units of each item there are and are taken, and by which holds: a line's key is
# its item, a slash and its hold.
ITEMS = Table(
    "items",
    (
        Column("name", "key"),
        Column("version", "integer"),
        Column("capacity", "integer"),
        Column("held", "integer"),
        Column("confirmed", "integer"),
    ),
)
LINES = Table(
    "lines",
    (
        Column("id", "key"),
        Column("item", "text"),
        Column("hold", "text"),
        Column("units", "integer"),
        Column("due_at_ms", "integer", required=False),
    ),
    indexes=(("lines_by_deadline", "item, due_at_ms"),),
)
# What was answered to requests that carry an Idempotency-Key.
ANSWERS = Table(
    "answers",
    (
        Column("id", "key"),
        Column("fingerprint", "text"),
        Column("status", "integer"),
        Column("version", "integer", required=False),
        Column("body", "bytes"),
        Column("at_ms", "integer"),
    ),
    indexes=(("answers_by_time", "at_ms"),),
)
# How attempts at alarms ended, the newest of them. The log has none of it: what is lost here
# stays lost, and nothing depends on it.
ATTEMPTS = Table(
    "attempts",
    (
        Column("id", "key"),
        Column("subject", "text"),
        Column("event_id", "text", required=False),
        Column("scheduled_ms", "integer"),
        Column("at_ms", "integer"),
        Column("outcome", "text"),
        Column("retry_count", "integer"),
        Column("lateness_ms", "integer"),
        Column("duration_ms", "integer", required=False),
        Column("error", "text", required=False),
    ),
)
# How far each durable object is, and its storage as it was once.
OBJECTS = Table(
    "objects",
    (
        Column("id", "key"),
        Column("version", "integer"),
        Column("alarm_at_ms", "integer", required=False),
    ),
)
SNAPSHOTS = Table(
    "snapshots",
    (Column("id", "key"), Column("version", "integer"), Column("state", "bytes")),
)
# Neither log nor projection: which process runs which object, and until when it may.
OWNERS = Table(
    "owners", (Column("token", "text"), Column("until_ms", "integer"), Column("process", "text"))
)
OWNERSHIPS = Table(
    "ownerships",
    (Column("id", "key"), Column("owner", "text"), Column("wanted", "integer")),
    indexes=(("ownerships_by_owner", "owner, wanted"),),
)
# Who may ask (infrastructure/tokens.py). Nothing else tells it: it is never made anew.
TOKENS = Table(
    "tokens",
    (
        Column("id", "key"),
        Column("name", "text"),
        Column("scope", "text"),
        Column("secret_sha256", "bytes"),
        Column("created_at_ms", "integer"),
        Column("expires_at_ms", "integer", required=False),
        Column("revoked_at_ms", "integer", required=False),
    ),
)

# Who serves it, as far as each has said lately.
SERVERS = Table(
    "servers",
    (Column("token", "key"), Column("process", "text"), Column("seen_at_ms", "integer")),
)

# What is made anew, empty, where it has gone.
REMADE = (
    ALARMS,
    RESERVATIONS,
    OBJECTS,
    SNAPSHOTS,
    OWNERS,
    OWNERSHIPS,
    ITEMS,
    LINES,
    ANSWERS,
    ATTEMPTS,
)
# What is in a log, with all that follows from it and stands beside it.
EVERYTHING = (EVENTS, *REMADE, TOKENS, SERVERS)
