"""The facts: what has happened to a reservation, in the past tense.

Each class satisfies the event protocol of the `eventsourcing` library (an
`originator_id` and an `originator_version`) and carries the times it is about, as
integer Unix milliseconds, so making one reads no clock. How an event is written to
the log, under which stable name, is the mapper's business
(`infrastructure/event_mapper.py`). Adding or changing one: see docs/events.md.

Each is final, so that `type(event) is Held` leaves `assert_never` nothing unless one was
forgotten; a `match` says the same and makes `apply` slower.
"""

from dataclasses import dataclass
from typing import final

from reservation_expiry.domain.terms import Terms


@final
@dataclass(frozen=True, slots=True)
class Held:
    """A hold began: for the first time, or anew. It resets whatever was before it."""

    originator_id: str
    originator_version: int
    created_at_ms: int
    expires_at_ms: int
    terms: Terms | None = None


@final
@dataclass(frozen=True, slots=True)
class AlarmScheduled:
    """The reservation's one alarm was set to this instant, replacing any earlier one."""

    originator_id: str
    originator_version: int
    scheduled_time_ms: int


@final
@dataclass(frozen=True, slots=True)
class Expired:
    """The hold ended because its time was up; its alarm is gone with it."""

    originator_id: str
    originator_version: int
    expired_at_ms: int


@final
@dataclass(frozen=True, slots=True)
class Extended:
    """The hold lasts until this instant now; its alarm follows."""

    originator_id: str
    originator_version: int
    expires_at_ms: int


@final
@dataclass(frozen=True, slots=True)
class Confirmed:
    """The hold ended in time, and what it held is its owner's; its alarm is gone."""

    originator_id: str
    originator_version: int
    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class Released:
    """The hold was given back in time; its alarm is gone."""

    originator_id: str
    originator_version: int
    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class Cancelled:
    """What was confirmed was given back, and its units are free again."""

    originator_id: str
    originator_version: int
    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class CapacitySet:
    """There are so many units of the item; `originator_id` is the item's."""

    originator_id: str
    originator_version: int
    capacity: int


ReservationEvent = Held | AlarmScheduled | Expired | Extended | Confirmed | Released | Cancelled
