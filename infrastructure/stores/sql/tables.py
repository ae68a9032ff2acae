"""The tables that many rows are written to at once, as the stores need to know them."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Table:
    """`columns` says which, in the order of a row's values, and what PostgreSQL calls their
    types; the first is the key. Rows of a table that is no log take the place of older ones
    with their key."""

    name: str
    columns: dict[str, str]
    is_log: bool = False

    @cached_property
    def large(self) -> int | None:
        """Where in a row the value is that may have megabytes, if there is one."""
        names = list(self.columns)
        return names.index("state") if "state" in names else None

    @property
    def key(self) -> str:
        return next(iter(self.columns))

    @cached_property
    def insert(self) -> str:
        """`INSERT INTO table (columns) `, to be followed by the rows."""
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) "

    @cached_property
    def on_conflict(self) -> str:
        if self.is_log:
            return ""
        news = ", ".join(f"{c} = excluded.{c}" for c in self.columns if c != self.key)
        return f" ON CONFLICT ({self.key}) DO UPDATE SET {news}"


EVENTS = Table(
    "events",
    {
        "position": "bigint",
        "originator_id": "text",
        "originator_version": "bigint",
        "topic": "text",
        "state": "bytea",
        "recorded_at_ms": "bigint",
        "checksum": "bytea",
    },
    is_log=True,
)
ALARMS = Table("alarms", {"id": "text", "next_run_time": "double precision", "job_state": "bytea"})
RESERVATIONS = Table(
    "reservations",
    {
        "name": "text",
        "version": "bigint",
        "status": "text",
        "created_at_ms": "bigint",
        "expires_at_ms": "bigint",
        "expired_at_ms": "bigint",
        "expiration_count": "bigint",
        "alarm_at_ms": "bigint",
    },
)
OBJECTS = Table("objects", {"id": "text", "version": "bigint", "alarm_at_ms": "bigint"})
SNAPSHOTS = Table("snapshots", {"id": "text", "version": "bigint", "state": "bytea"})
