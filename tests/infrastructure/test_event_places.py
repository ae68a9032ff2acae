"""Where an event must be told: the table of events, walked place by place.

What is forgotten is said in a sentence that names the event and where it is missing.
docs/events.md has the same places, in words.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

from reservation_expiry.api.cli.reservations import list_reservations
from reservation_expiry.api.read_routes import STATUSES
from reservation_expiry.api.rendering import render_event
from reservation_expiry.domain.durable_object import ObjectEvent, StoredObject
from reservation_expiry.domain.events import AlarmScheduled, CapacitySet, Held, ReservationEvent
from reservation_expiry.domain.reservation import Reservation, Status, project
from reservation_expiry.infrastructure.alarm_row import decode
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.event_mapper import EVENT_TYPES, EventMapper, EventType
from reservation_expiry.infrastructure.replay.diff import diff
from reservation_expiry.infrastructure.stores.sql.queries import RecordedEvent
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

GOLDEN = Path(__file__).parent / "golden"
DOCUMENT = Path(__file__).parents[2] / "docs" / "events.md"
MAPPER = EventMapper()
AT = 1_800_000_000_000
SEAT = "reservation/seat-12"
HOLD = (Held(SEAT, 1, AT, AT + 30_000), AlarmScheduled(SEAT, 2, AT + 30_000))


def of_reservation(event_type: EventType) -> bool:
    return event_type.event_class in get_args(ReservationEvent)


def of_object(event_type: EventType) -> bool:
    return event_type.event_class in get_args(ObjectEvent)


def of_item(event_type: EventType) -> bool:
    """Of which nothing follows but a counter (infrastructure/units.py)."""
    return event_type.event_class is CapacitySet


def example(event_type: EventType) -> Any:
    """The golden file's event, its times 1 ms later, so that none is what was there before."""
    file = json.loads((GOLDEN / f"{event_type.topic}.json").read_text())
    row = (file["originator_id"], 3 if of_reservation(event_type) else file["version"])
    event = MAPPER.decode(*row, file["topic"], file["state"].encode())
    times = (f.name for f in fields(event) if f.name.endswith("_ms"))
    return replace(event, **{name: getattr(event, name) + 1 for name in times})


def recorded(event: Any) -> RecordedEvent:
    stored = MAPPER.to_stored_event(event)
    row = (str(stored.originator_id), stored.originator_version, stored.topic, stored.state)
    return RecordedEvent(1, *row, AT, b"")


@dataclass(frozen=True)
class Append(Work):
    """Writes events as they are, as a command that had decided them would."""

    events: tuple[Any, ...]

    def run(self, unit: UnitOfWork) -> Reservation | None:
        whose = self.events[0].originator_id
        if whose == SEAT:
            return unit.append(whose, self.events)
        unit.append_to_object(whose, self.events)
        return None


@dataclass(frozen=True)
class AlarmOf(Work):
    """When an alarm is set to ring by its row; None if there is none."""

    id: str

    on_tables = True

    def run(self, unit: UnitOfWork) -> int | None:
        row = unit.session.alarm(self.id)
        return None if row is None else decode(row[2]).scheduled_time


Place = Callable[[EventType, ReservationApplication], str | None]
"""What is missing there of an event, None if nothing is."""


def in_a_union(event_type: EventType, _: ReservationApplication) -> str | None:
    if of_reservation(event_type) or of_object(event_type) or of_item(event_type):
        return None
    return "it is neither in ReservationEvent nor in ObjectEvent, so types ask nobody for it"


def in_the_golden_files(event_type: EventType, _: ReservationApplication) -> str | None:
    name = f"{event_type.topic}.json"
    return None if (GOLDEN / name).exists() else f"tests/infrastructure/golden/{name} is not there"


def in_the_documents(event_type: EventType, _: ReservationApplication) -> str | None:
    """Its section, with a row for each field."""
    parts = DOCUMENT.read_text().split("\n## ")
    section = next((p for p in parts if p.startswith(f"{event_type.topic}\n")), None)
    if section is None:
        return "docs/events.md has no section of it"
    names = (f.name for f in fields(event_type.event_class))
    own = [name for name in names if not name.startswith("originator_")]
    forgotten = [name for name in own if f"| `{name}` |" not in section]
    return f"its section in docs/events.md lacks {', '.join(forgotten)}" if forgotten else None


def in_apply(event_type: EventType, _: ReservationApplication) -> str | None:
    if of_item(event_type):
        return None
    event = example(event_type)
    try:
        if of_reservation(event_type):
            project(None, (*HOLD, event))
        else:
            StoredObject().apply(event)
    except AssertionError:
        return "apply does not know it"
    return None


def in_the_alarms(event_type: EventType, application: ReservationApplication) -> str | None:
    """The alarm's row is what the state says, once the event is written."""
    if of_item(event_type):
        return None
    event, execute = example(event_type), application.writer.execute
    if of_reservation(event_type):
        execute(Append(HOLD))
        after = execute(Append((event,))).alarm_at_ms
    else:
        execute(Append((event,)))
        state = StoredObject()
        state.apply(event)
        after = state.alarm_at_ms
    row = execute(AlarmOf(event.originator_id))
    return None if row == after else f"the alarm's row says {row} after it, the state {after}"


def in_diff(event_type: EventType, application: ReservationApplication) -> str | None:
    if of_object(event_type) or of_item(event_type):
        return None  # diff speaks of holds
    application.writer.execute(Append((*HOLD, example(event_type))))
    try:
        list(diff(application.queries, MAPPER, 0, 2**62))
    except AssertionError:
        return "infrastructure/replay/diff.py does not know it"
    return None


def in_what_is_shown(event_type: EventType, _: ReservationApplication) -> str | None:
    """Its fields are shown as they stand in the log."""
    row = recorded(example(event_type))
    shown = json.loads(msgspec.json.encode(render_event(row, MAPPER)))
    if "problem" in shown:
        return f"it is shown with a problem: {shown['problem']}"
    stored = json.loads(row.state).values()
    forgotten = [value for value in stored if value not in shown["data"].values()]
    return f"api/rendering.py does not show {forgotten} as it is" if forgotten else None


PLACES: tuple[Place, ...] = (
    in_a_union,
    in_the_golden_files,
    in_the_documents,
    in_apply,
    in_the_alarms,
    in_diff,
    in_what_is_shown,
)


def missing(
    event_type: EventType, application: ReservationApplication, places: tuple[Place, ...]
) -> Iterator[str]:
    for place in places:
        said = place(event_type, application)
        if said is not None:
            yield f"{event_type.topic}: {said}"


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.topic)
def test_an_event_is_told(
    event_type: EventType, place: Place, application: ReservationApplication
) -> None:
    assert list(missing(event_type, application, (place,))) == []


def test_a_forgotten_event_is_named_with_the_places_it_is_missing_in(
    application: ReservationApplication,
) -> None:
    @dataclass(frozen=True)
    class Lost:
        originator_id: str
        originator_version: int
        until_ms: int

    told = list(missing(EventType("reservation.Lost", Lost), application, PLACES[:3]))
    assert told == [
        "reservation.Lost: it is neither in ReservationEvent nor in ObjectEvent, "
        "so types ask nobody for it",
        "reservation.Lost: tests/infrastructure/golden/reservation.Lost.json is not there",
        "reservation.Lost: docs/events.md has no section of it",
    ]


def test_every_status_can_be_asked_for() -> None:
    option = next(p for p in list_reservations.params if p.name == "status")
    assert isinstance(option.type, click.Choice)
    assert set(STATUSES) == set(get_args(Status)), "api/read_routes.py lacks a status"
    assert set(option.type.choices) == set(get_args(Status)), "list --status lacks a status"
