"""What is read from a store and written to it: the shapes of its rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

AlarmRow = tuple[str, float | None, bytes]
"""(id, next_run_time in Unix seconds or None when parked, job_state)"""

ReservationRow = tuple[
    str, int, str, int, int, int | None, int, int | None, int | None, str | None, str | None
]
"""(name, version, status, created, expires and expired at in ms, count, alarm at and ended at
in ms, owner, terms as JSON)"""

ItemRow = tuple[str, int, int, int, int]
"""(name, version, capacity, units held, units confirmed)"""

LineRow = tuple[str, str, str, int, int | None]
"""(item/hold, item, hold, units)"""

AnswerRow = tuple[str, str, int, int | None, bytes, int]
"""(key, fingerprint of the request, status, version of the hold, body, when in ms)"""


ObjectRow = tuple[str, int, int | None]
"""(id, version, what its alarm is set to in ms)"""

OwnedRow = tuple[str, str, int | None, int | None]
"""(id, its owner, version and what its alarm is set to in ms, both None if it has no row)"""

OwnerRow = tuple[str, int, str]
"""(token, until when its objects are its own in ms, which process it is)"""

SnapshotRow = tuple[str, int, bytes]
"""(id, version, the storage after it as JSON)"""

TokenRow = tuple[str, str, str, bytes, int, int | None, int | None]
"""(id, name, scope, SHA-256 of the secret, created, expires and revoked at in ms)"""


class AttemptFacts(NamedTuple):
    """One attempt at an alarm, or at a schedule's event, as it is kept.

    `subject` is the id in the log of what the alarm is of; `event_id` the schedule's event;
    times and durations are ms, `duration_ms` None where it took no time of its own; `error`
    is None unless it failed.
    """

    subject: str
    event_id: str | None
    scheduled_ms: int
    at_ms: int
    outcome: str
    retry_count: int
    lateness_ms: int
    duration_ms: int | None
    error: str | None


AttemptRow = tuple[str, *tuple[Any, ...]]
"""(id, and the fields of AttemptFacts). Ids are in the order of the commits."""


@dataclass(frozen=True, slots=True)
class AlarmScope:
    """Which alarms a process can run: those whose ids begin with one of `prefixes`, and
    whose object is not in the hands of an owner other than `owner`."""

    prefixes: tuple[str, ...]
    owner: str | None = None


EventRow = tuple[int, str, int, str, bytes, int, bytes]
"""(position, originator_id, version, topic, state, recorded_at_ms, checksum)"""

ServerRow = tuple[str, str, int]
"""(token, process, when it said so last)"""

LogRow = tuple[str, int, str, bytes, int]
"""(originator_id, originator_version, topic, state, position)"""


@dataclass(slots=True)
class Chunk:
    """A range of names: their events in order, and the rows projected from them.

    `last_name` is where the next chunk goes on, None after the last one.
    """

    last_name: str | None
    events: Iterator[LogRow]
    reservations: dict[str, ReservationRow]
    alarms: dict[str, AlarmRow]


@dataclass(slots=True)
class ObjectChunk:
    """A range of ids: their events in order, and the rows projected from them.

    `last_id` is where the next chunk goes on, None after the last one.
    """

    last_id: str | None
    events: Iterator[LogRow]
    objects: dict[str, ObjectRow]
    alarms: dict[str, AlarmRow]
    snapshots: dict[str, SnapshotRow]
