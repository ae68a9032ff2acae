"""Events and the rows they stand in: today's, yesterday's, and what is refused.

`golden/` has one file for each state that was ever written, named by its topic. A file
is never edited: what it says is in somebody's log. An event that changes gets an upcast,
and a second file (`reservation.Held.2.json`) beside the first.
"""

import json
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, is_dataclass
from itertools import chain as chain_of
from pathlib import Path
from typing import Any, get_args

import pytest
from eventsourcing.persistence import StoredEvent

from reservation_expiry.domain import durable_object as domain_object
from reservation_expiry.domain import events as domain_events
from reservation_expiry.domain.durable_object import ObjectEvent
from reservation_expiry.domain.events import (
    AlarmScheduled,
    CapacitySet,
    Expired,
    Held,
    ReservationEvent,
)
from reservation_expiry.domain.reservation import project
from reservation_expiry.domain.terms import Line
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.checksum import GENESIS, chain
from reservation_expiry.infrastructure.errors import StoreError, UndecodableEvent, UnknownTopic
from reservation_expiry.infrastructure.event_mapper import (
    EVENT_TYPES,
    EventMapper,
    EventType,
    _encode_held,
)
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.replay.verify import verify
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.sqlite.database import Database
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession
from reservation_expiry.infrastructure.stores.sqlite.store import SqliteStore
from reservation_expiry.infrastructure.writer import Writer
from tests.support.clock import ManualClock

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
SEAT = "reservation/seat-12"
HELD = b'{"created_at_ms":1800000000000,"expires_at_ms":1800000030000}'


def golden(path: Path) -> dict[str, Any]:
    file = json.loads(path.read_text())
    fields = file["event"]["fields"]
    if "puts" in fields:  # what JSON cannot say of an event: the bytes, and the tuple
        fields["puts"] = {key: value.encode() for key, value in fields["puts"].items()}
        fields["deletes"] = tuple(fields["deletes"])
    if fields.get("terms") is not None:
        lines = tuple(Line(*line) for line in fields["terms"]["lines"])
        fields["terms"]["lines"] = lines
    return file


def event_classes() -> set[type]:
    """Every event that the domain defines: the dataclasses with an originator."""
    modules = vars(domain_events).values(), vars(domain_object).values()
    return {
        value
        for value in chain_of(*modules)
        if isinstance(value, type)
        and is_dataclass(value)
        and value.__dataclass_fields__.keys() >= {"originator_id", "originator_version"}
    }


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_file_loads_to_the_event_it_names(path: Path) -> None:
    file = golden(path)
    row = (file["originator_id"], file["version"], file["topic"], file["state"].encode())
    event = EventMapper().to_domain_event(StoredEvent(*row))
    assert event == EventMapper().decode(*row)
    assert {"class": type(event).__name__, "fields": asdict(event)} == file["event"]


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.topic)
def test_the_newest_golden_file_of_a_topic_is_what_is_written_today(event_type: EventType) -> None:
    newest = [golden(path) for path in GOLDEN if golden(path)["topic"] == event_type.topic][-1]
    event = event_type.event_class(**newest["event"]["fields"])
    assert EventMapper().to_stored_event(event) == StoredEvent(
        newest["originator_id"], newest["version"], newest["topic"], newest["state"].encode()
    )


def test_every_topic_stands_in_the_documents() -> None:
    text = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    assert [topic for topic in EventMapper().topics if f"## {topic}\n" not in text] == []


def test_every_event_is_in_the_table_and_has_a_golden_file() -> None:
    in_table = {event_type.event_class for event_type in EVENT_TYPES}
    assert (
        event_classes()
        == {
            *get_args(ReservationEvent),
            *get_args(ObjectEvent),
            CapacitySet,
        }
        == in_table
    )
    assert {golden(path)["event"]["class"] for path in GOLDEN} == {c.__name__ for c in in_table}
    assert {golden(path)["topic"] for path in GOLDEN} == EventMapper().topics


def test_every_version_of_a_state_has_its_golden_file() -> None:
    for event_type in EVENT_TYPES:
        written = [golden(path) for path in GOLDEN if golden(path)["topic"] == event_type.topic]
        versions = [json.loads(file["state"]).get("v", 1) for file in written]
        assert set(versions) == set(range(1, event_type.version + 1)), event_type.topic


# F19: the log of an older version, whose Held was called Booked and said less.


@dataclass(frozen=True)
class Booked:
    originator_id: str
    originator_version: int
    created_at_ms: int
    ttl_seconds: int


def booked_to_held(state: dict[str, Any]) -> dict[str, Any]:
    ttl_ms = state.pop("ttl_seconds") * 1000
    return {**state, "expires_at_ms": state["created_at_ms"] + ttl_ms}


YESTERDAY = EventMapper((EventType("reservation.Held", Booked), *EVENT_TYPES[1:]))
TODAY = EventMapper(
    (EventType("reservation.Held", Held, (booked_to_held,), _encode_held), *EVENT_TYPES[1:])
)
TOMORROW = EventMapper(
    (
        EventType(
            "reservation.Held", Held, (booked_to_held, lambda state: dict(state)), _encode_held
        ),
        *EVENT_TYPES[1:],
    )
)

OLD_LOG = (
    Booked(SEAT, 1, 1_800_000_000_000, 60),
    AlarmScheduled(SEAT, 2, 1_800_000_060_000),
    Expired(SEAT, 3, 1_800_000_060_001),
    Booked(SEAT, 4, 1_800_000_100_000, 5),
    AlarmScheduled(SEAT, 5, 1_800_000_105_000),
)
NEW_LOG = (
    Held(SEAT, 1, 1_800_000_000_000, 1_800_000_060_000),
    *OLD_LOG[1:3],
    Held(SEAT, 4, 1_800_000_100_000, 1_800_000_105_000),
    OLD_LOG[4],
)


def test_a_log_from_before_a_class_was_renamed_and_grew_a_field_replays_to_the_same_state() -> None:
    rows = [YESTERDAY.to_stored_event(event) for event in OLD_LOG]
    read = [TODAY.to_domain_event(row) for row in rows]
    assert read == list(NEW_LOG)
    assert project(None, read) == project(None, NEW_LOG)


def test_old_and_new_states_stand_side_by_side_in_one_log() -> None:
    rows = [YESTERDAY.to_stored_event(event) for event in OLD_LOG[:3]]
    rows += [TODAY.to_stored_event(event) for event in NEW_LOG[3:]]
    assert b'"v"' not in rows[0].state
    assert json.loads(rows[3].state)["v"] == 2
    assert [TODAY.to_domain_event(row) for row in rows] == list(NEW_LOG)
    assert [TOMORROW.to_domain_event(row) for row in rows] == list(NEW_LOG)


def test_a_state_that_a_newer_release_wrote_is_refused() -> None:
    row = TOMORROW.to_stored_event(NEW_LOG[0])
    with pytest.raises(UndecodableEvent, match="state version 3"):
        TODAY.to_domain_event(row)


def test_the_projections_of_an_old_log_are_what_todays_log_would_give(database_path: Path) -> None:
    database = SqliteStore(database_path)
    writer = Writer(lambda: SqliteSession(database), TODAY, ManualClock())
    write_log(database, [YESTERDAY.to_stored_event(event) for event in OLD_LOG])
    writer.start()
    try:
        rebuild(writer.execute, TODAY)
        assert Queries(database).reservation("seat-12") == project(None, NEW_LOG)
        assert verify(database, TODAY).found == 0
    finally:
        writer.stop()
        database.close()


def write_log(database: Database, stored: list[StoredEvent]) -> None:
    """Appends the rows as they are, with positions and checksums that are right."""
    session, checksum, rows = SqliteSession(database), GENESIS, []
    for position, event in enumerate(stored, start=1):
        row = (event.originator_id, event.originator_version, event.topic)
        checksum = chain(checksum, position, *row, 1_800_000_000_000, event.state)
        rows.append((position, *row, event.state, 1_800_000_000_000, checksum))
    session.begin()
    session.append(rows)
    session.commit()
    session.close()


# F31: a topic is looked up in a closed table. It is no path, and nothing is imported.


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `trap` on the path that leaves a file, here returned, when imported."""
    sprung = tmp_path / "sprung"
    (tmp_path / "trap.py").write_text(
        f"open({str(sprung)!r}, 'w').close()\nclass Held: pass\ndef run(*args): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield sprung
    sys.modules.pop("trap", None)


FOREIGN_TOPICS = [
    "os:system",
    "trap:run",
    "trap:Held",
    "trap",
    "trap.Held",
    "reservation_expiry.domain.events:Held",
    "reservation_expiry.domain.events.Held",
    "antigravity:fly",
    "Held",
    "reservation.held",
    "reservation.Held ",
    "reservation.Held\0",
    "",
]


@pytest.mark.parametrize("topic", FOREIGN_TOPICS, ids=ascii)
def test_a_topic_that_is_not_in_the_table_is_unknown_and_imports_nothing(
    topic: str, trap: Path
) -> None:
    loaded = set(sys.modules)
    with pytest.raises(UnknownTopic) as refused:
        EventMapper().to_domain_event(StoredEvent(SEAT, 1, topic, HELD))
    assert repr(topic) in str(refused.value)
    assert set(sys.modules) == loaded
    assert not trap.exists()


@pytest.mark.parametrize("topic", ["os:system", "trap:Held"])
def test_a_foreign_topic_in_the_log_stops_every_way_to_read_it_and_imports_nothing(
    topic: str, application: ReservationApplication, database_path: Path, trap: Path
) -> None:
    application.hold("seat-12", 60)
    connection = sqlite3.connect(database_path, isolation_level=None)
    connection.execute("UPDATE events SET topic = ? WHERE position = 1", (topic,))
    connection.close()
    readers = [
        lambda: application.hold("seat-12", 60),
        lambda: list(application.events.get(SEAT)),
        lambda: application.repository.get(SEAT, projector_func=project),
    ]
    for read in readers:
        with pytest.raises(UnknownTopic, match=topic):
            read()
    assert not trap.exists()


def test_an_event_that_is_not_in_the_table_is_not_written() -> None:
    with pytest.raises(UnknownTopic, match="Booked has no topic"):
        EventMapper().to_stored_event(Booked(SEAT, 1, 1, 5))


GARBAGE = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"hello",
    HELD[:-1],
    HELD + b"x",
    b"null",
    b"5",
    b'"text"',
    b"[]",
    b"{}",
    b"\x80\x04N.",  # a pickle
    b'{"created_at_ms":1800000000000}',
    b'{"created_at_ms":"1800000000000","expires_at_ms":1800000030000}',
    b'{"created_at_ms":1800000000000.5,"expires_at_ms":1800000030000}',
    b'{"created_at_ms":1e12,"expires_at_ms":1800000030000}',
    b'{"created_at_ms":true,"expires_at_ms":1800000030000}',
    b'{"created_at_ms":null,"expires_at_ms":1800000030000}',
    b'{"created_at_ms":[],"expires_at_ms":1800000030000}',
    b'{"created_at_ms":1,"expires_at_ms":2,"more":3}',
    b'{"created_at_ms":1,"expires_at_ms":2,"originator_id":3}',
    b"[" * 100_000,
    b'{"created_at_ms":1,"expires_at_ms":2,"v":-1}',
    b'{"created_at_ms":1,"expires_at_ms":2,"v":0}',
    b'{"created_at_ms":1,"expires_at_ms":2,"v":2}',
    b'{"created_at_ms":1,"expires_at_ms":2,"v":"1"}',
    b'{"created_at_ms":1,"expires_at_ms":2,"v":null}',
]


@pytest.mark.parametrize("state", GARBAGE, ids=range(len(GARBAGE)))
def test_a_state_that_is_not_the_events_own_is_undecodable(state: bytes) -> None:
    with pytest.raises(
        UndecodableEvent, match=r"seat-12 version 7 \(reservation.Held\)"
    ) as refused:
        EventMapper().decode(SEAT, 7, "reservation.Held", state)
    assert not isinstance(refused.value, UnknownTopic)
    assert isinstance(refused.value, StoreError)


def test_an_old_state_that_its_upcast_cannot_lift_is_undecodable() -> None:
    with pytest.raises(UndecodableEvent):
        TODAY.decode(SEAT, 7, "reservation.Held", b'{"created_at_ms":1}')


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 10**30])
def test_a_time_that_no_column_can_hold_is_undecodable(number: int) -> None:
    state = b'{"created_at_ms":1,"expires_at_ms":%d}' % number
    with pytest.raises(UndecodableEvent):
        EventMapper().decode(SEAT, 7, "reservation.Held", state)
