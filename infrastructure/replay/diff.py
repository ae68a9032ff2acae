"""What began, ended and moved between two times, told from the log."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

from reservation_expiry.domain.events import (
    AlarmScheduled,
    Cancelled,
    Confirmed,
    Expired,
    Extended,
    Held,
    Released,
    ReservationEvent,
)
from reservation_expiry.domain.ids import is_reservation, reservation_name
from reservation_expiry.domain.reservation import Reservation, apply
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.sql.queries import Queries, RecordedEvent

PAGE_EVENTS = 2_000


What = Literal["began", "moved", "ended"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `at_ms` is when it was recorded, in Unix milliseconds."""

    at_ms: int
    what: What
    name: str
    position: int
    detail: str


def diff(queries: Queries, mapper: EventMapper, from_ms: int, to_ms: int) -> Iterator[Change]:
    """The changes recorded after `from_ms` and up to `to_ms`, in order of the log.

    A hold of something that was held at the time moves it; any other begins it. Memory
    grows with the number of names that changed, not with the log. Raises
    UndecodableEvent.
    """

    def page(position: int) -> list[RecordedEvent]:
        return queries.events_recorded(from_ms, to_ms, position, PAGE_EVENTS)

    return _changes(queries, mapper, page, 0)


def changes_between(
    queries: Queries, mapper: EventMapper, after: int, upto: int
) -> Iterator[Change]:
    """The same of the events behind a position, up to and with another."""

    def page(position: int) -> list[RecordedEvent]:
        return queries.events_after(position, PAGE_EVENTS, stop=upto)

    return _changes(queries, mapper, page, after)


def _changes(
    queries: Queries,
    mapper: EventMapper,
    page: Callable[[int], list[RecordedEvent]],
    position: int,
) -> Iterator[Change]:
    states: dict[str, Reservation | None] = {}
    while rows := page(position):
        for row in rows:
            if not is_reservation(row.originator_id):
                continue
            change = _change(queries, mapper, states, row)
            if change is not None:
                yield change
        position = rows[-1].position


def _change(
    queries: Queries,
    mapper: EventMapper,
    states: dict[str, Reservation | None],
    row: RecordedEvent,
) -> Change | None:
    before = _before(queries, mapper, states, row)
    event: ReservationEvent = mapper.decode(
        row.originator_id, row.originator_version, row.topic, row.state
    )
    states[row.originator_id] = apply(before, event)
    name = reservation_name(row.originator_id)
    what: What
    match event:
        case Held():
            what, detail = "began", f"until {event.expires_at_ms}"
            if before is not None and before.status == "held":
                what, detail = "moved", f"{detail}, was until {before.expires_at_ms}"
        case Expired():
            what, detail = "ended", f"expired at {event.expired_at_ms}"
        case Extended():
            what, detail = "moved", f"until {event.expires_at_ms}"
        case Confirmed():
            what, detail = "ended", f"confirmed at {event.at_ms}"
        case Released():
            what, detail = "ended", f"released at {event.at_ms}"
        case Cancelled():
            what, detail = "ended", f"cancelled at {event.at_ms}"
        case AlarmScheduled():
            return None  # the hold that it follows says when
        case _ as never:
            assert_never(never)
    return Change(row.recorded_at_ms, what, name, row.position, detail)


def _before(
    queries: Queries,
    mapper: EventMapper,
    states: dict[str, Reservation | None],
    row: RecordedEvent,
) -> Reservation | None:
    """The state before the event in `row`: known, or replayed the first time."""
    if row.originator_id not in states:
        state = None
        for earlier in queries.history(row.originator_id):
            if earlier.originator_version >= row.originator_version:
                break
            event = mapper.decode(
                earlier.originator_id, earlier.originator_version, earlier.topic, earlier.state
            )
            state = apply(state, event)
        return state
    return states[row.originator_id]
