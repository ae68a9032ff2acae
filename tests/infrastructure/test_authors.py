"""By whom: the name of a command's token, in the log and out of it again."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_expiry.domain.durable_object import StorageWritten
from reservation_expiry.domain.tokens import TOKEN_NAME
from reservation_expiry.infrastructure.acting import acting
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.event_mapper import (
    EVENT_TYPES,
    EventMapper,
    author_of,
    with_author,
)
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.replay.backup import copy_log
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.clock import ManualClock
from tests.support.logs import verified
from tests.support.loops import schedules_of
from tests.support.objects import World

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
NAMES = st.from_regex(TOKEN_NAME, fullmatch=True)
JSON = st.recursive(
    st.none() | st.integers(0, 9) | st.text() | st.sampled_from(['","by":"x"}', ',"by":"x"', "by"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "by"]) | st.text(), inner, max_size=2)
    ),
    max_leaves=5,
)


@contextmanager
def acted_by(name: str) -> Iterator[None]:
    token = acting.set(name)
    try:
        yield
    finally:
        acting.reset(token)


def authors(address: Address) -> list[tuple[str, str | None]]:
    """(event, by whom) of the whole log."""
    store = open_store(address)
    try:
        rows = Queries(store).events_after(0, 1_000)
    finally:
        store.close()
    return [(row.topic.rpartition(".")[2], author_of(row.state)) for row in rows]


def test_no_event_has_a_field_of_that_name() -> None:
    assert not [t for t in EVENT_TYPES if "by" in {f.name for f in fields(t.event_class)}]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_event_reads_the_same_with_an_author(path: Path) -> None:
    file, mapper = json.loads(path.read_text()), EventMapper()
    state = file["state"].encode()
    signed = with_author(state, "ci.2")
    assert json.loads(signed) == json.loads(state) | {"by": "ci.2"}
    assert (author_of(state), author_of(signed)) == (None, "ci.2")
    read = [mapper.decode(file["originator_id"], 1, file["topic"], s) for s in (state, signed)]
    assert read[0] == read[1]


@given(puts=st.dictionaries(st.text(min_size=1), JSON, max_size=3), name=NAMES)
def test_nothing_that_people_store_is_taken_for_an_author(puts: dict[str, Any], name: str) -> None:
    mapper = EventMapper()
    values = {key: json.dumps(value, ensure_ascii=False).encode() for key, value in puts.items()}
    event = StorageWritten("object/A/b", 1, values, (), False)
    state = mapper.to_stored_event(event).state
    assert author_of(state) is None
    signed = with_author(state, name)
    assert author_of(signed) == name
    for stands in (state, signed):
        assert mapper.decode("object/A/b", 1, "object.StorageWritten", stands) == event


def test_all_that_a_command_causes_is_its_callers_and_an_alarm_is_nobodys(
    application: ReservationApplication, address: Address, clock: ManualClock, new_address: Any
) -> None:
    with acted_by("ci"):
        state = application.hold("seat-1", 60)
    application.hold("seat-2", 5)
    clock.move_to(state.expires_at_ms)
    with acted_by("ops"):
        application.hold("seat-2", 60)  # ends the old hold first
        application.expire("seat-1", state.expires_at_ms)
    assert authors(address) == [
        ("Held", "ci"),
        ("AlarmScheduled", "ci"),
        ("Held", None),
        ("AlarmScheduled", None),
        ("Expired", "ops"),
        ("Held", "ops"),
        ("AlarmScheduled", "ops"),
        ("Expired", "ops"),
    ]
    assert verified(address).found == 0
    copied = new_address()
    assert copy_log(address, copied).found == 0
    assert authors(copied) == authors(address)


class Box(DurableObject):
    async def put(self, key: str) -> None:
        await self.ctx.storage.put(key, 1)

    async def later(self, at_ms: int) -> None:
        await self.ctx.storage.setAlarm(at_ms)

    async def alarm(self) -> None:
        await self.ctx.storage.put("rang", 1)


def test_requests_that_write_to_one_object_at_once_are_told_apart(address: Address) -> None:
    async def by(name: str | None, world: World, key: str) -> None:
        acting.set(name)
        await world.stub("Box").put(key)

    async def steps() -> None:
        async with World(address, Box) as world:
            await asyncio.gather(by("ci", world, "a"), by("ops", world, "b"), by(None, world, "c"))

    asyncio.run(steps())
    written = [name for event, name in authors(address) if event == "StorageWritten"]
    assert sorted(written, key=str) == [None, "ci", "ops"]


def test_the_alarm_of_an_object_is_nobodys_whoever_set_it(address: Address) -> None:
    async def steps() -> None:
        async with World(address, Box) as world:
            acting.set("ci")
            await world.stub("Box").later(world.clock.now_ms() + 1_000)
            acting.set(None)
            await world.advance(1_000)

    asyncio.run(steps())
    assert authors(address) == [
        ("AlarmSet", "ci"),
        ("StorageWritten", None),
        ("AlarmHandled", None),
    ]


def test_what_a_service_does_is_not_the_doing_of_who_came_first(
    application: ReservationApplication, address: Address
) -> None:
    with schedules_of(application) as schedules:
        with acted_by("ci"):
            schedules.ask("s", "scheduleEvent", "tea", 1_900_000_000_000)
        schedules.ask("s", "scheduleEvent", "tee", 1_900_000_000_000)
        with acted_by("ops"):
            schedules.ask("s", "cancelEvent", "tea")
    found = [name for _, name in authors(address)]
    assert [name for i, name in enumerate(found) if i == 0 or name != found[i - 1]] == [
        "ci",
        None,
        "ops",
    ]
