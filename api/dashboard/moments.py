"""One of them as it was: the state after each of its events, and what each changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reservation_expiry.api.dashboard.filters import beginning_of, shortened
from reservation_expiry.api.hold_answers import hold_fields
from reservation_expiry.api.rendering import render, render_event
from reservation_expiry.domain.durable_object import StoredObject
from reservation_expiry.domain.ids import is_reservation, reservation_name
from reservation_expiry.domain.reservation import Reservation, apply
from reservation_expiry.infrastructure.errors import UndecodableEvent
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.sql.queries import Queries, RecordedEvent

AROUND = 50  # events that are shown before and after the one that is looked at
SHOWN_KEYS = 200  # of a storage

State = Reservation | StoredObject | None


@dataclass(frozen=True)
class Field:
    """One line of a state. `before` is what it was before the event, None if it was not."""

    name: str
    value: str
    before: str | None
    is_changed: bool
    is_time: bool


@dataclass(frozen=True)
class Moment:
    """The state after `version` events of `newest`. `problem` says why it cannot be told."""

    version: int
    newest: int
    at_ms: int | None
    event: str | None
    by: str | None
    fields: list[Field]
    left_out: int  # of the fields
    events: list[dict[str, Any]]  # those around it, as `render_event` shows them
    problem: str | None = None


def moment(
    queries: Queries, mapper: EventMapper, aggregate_id: str, version: int | None
) -> Moment | None:
    """How it stood after so many events, None for the newest. None if it has no history."""
    newest = queries.newest_version(aggregate_id)
    if newest is None:
        return None
    wanted = newest if version is None else min(version, newest)
    row, before, after, problem = _replay(queries, mapper, aggregate_id, wanted)
    first = max(0, wanted - AROUND - 1)
    around = queries.events_of(aggregate_id, after_version=first, limit=2 * AROUND + 1)
    events = [render_event(one, mapper) for one in reversed(around)]
    fields = _fields(_shown(aggregate_id, before), _shown(aggregate_id, after))
    shown = None if row is None else render_event(row, mapper)
    return Moment(
        wanted,
        newest,
        None if row is None else row.recorded_at_ms,
        None if shown is None else str(shown["event"]),
        None if shown is None else shown.get("by"),  # type: ignore[arg-type]  # text, if any
        fields[:SHOWN_KEYS],
        max(0, len(fields) - SHOWN_KEYS),
        events,
        problem,
    )


def _replay(
    queries: Queries, mapper: EventMapper, aggregate_id: str, version: int
) -> tuple[RecordedEvent | None, dict[str, Any], State, str | None]:
    """(the event itself, what was shown before it, the state after it, what is wrong)."""
    state: State = None if is_reservation(aggregate_id) else StoredObject()
    before: dict[str, Any] = {}
    for row in queries.history(aggregate_id):
        is_last = row.originator_version >= version
        if is_last:
            before = _shown(aggregate_id, state)
        try:
            state = _applied(mapper, state, row)
        except UndecodableEvent as error:
            return row, before, state, str(error)
        if is_last:
            return row, before, state, None
    return None, before, state, None


def _applied(mapper: EventMapper, state: State, row: RecordedEvent) -> State:
    event: Any = mapper.decode(row.originator_id, row.originator_version, row.topic, row.state)
    if isinstance(state, StoredObject):
        state.apply(event)
        return state
    return apply(state, event)


def _shown(aggregate_id: str, state: State | dict[str, Any]) -> dict[str, Any]:
    """A state as lines of a table; what has been shown already stays as it is."""
    if isinstance(state, dict):
        return state
    if isinstance(state, StoredObject):
        keys = {f"storage: {key}": value.decode() for key, value in sorted(state.storage.items())}
        return {"version": state.version, "alarmAt": state.alarm_at_ms, **keys}
    shown = render(reservation_name(aggregate_id), state)
    if state is not None and state.terms is not None:
        terms = hold_fields(state, state.created_at_ms)
        shown |= {key: terms[key] for key in ("until", "lines", "owner", "metadata", "endedAt")}
    return shown


def _fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Field]:
    names = [*after, *(name for name in before if name not in after)]
    return [
        Field(
            name,
            _text(after.get(name)),
            _text(before[name]) if name in before else None,
            before.get(name) != after.get(name),
            name.endswith("At") or name == "until",
        )
        for name in names
    ]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return beginning_of(value) if isinstance(value, str) else shortened(value)
