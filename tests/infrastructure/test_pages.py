"""F65: a page of the log has a limit in bytes as well as in rows, and memory has a bound."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from reservation_expiry.api.http import create_app
from reservation_expiry.api.read_routes import render_event
from reservation_expiry.domain.durable_object import StorageWritten
from reservation_expiry.domain.ids import object_id
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.pages import PAGE_BYTES
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from tests.support.clock import ManualClock
from tests.support.logs import verified

MIB = 1024 * 1024
BOX = str(object_id("Box", "big"))


class Put(Work):
    """One write of an object: so many bytes of JSON under one key."""

    def __init__(self, version: int, size: int) -> None:
        self._event = StorageWritten(BOX, version, {"a": b'"%b"' % (b"x" * (size - 2))}, (), False)

    def run(self, unit: UnitOfWork) -> None:
        unit.append_to_object(BOX, (self._event,))


def filled(address: Address, *sizes: int) -> None:
    application = ReservationApplication(address, ManualClock())
    application.start(alarms=False)
    for version, size in enumerate(sizes, start=1):
        application.writer.execute(Put(version, size))
    application.stop()


@pytest.fixture
def queries(address: Address) -> Iterator[Queries]:
    store = open_store(address)
    yield Queries(store)
    store.close()


def sizes(rows: list[Any]) -> list[int]:
    return [round(len(row.state) / MIB, 1) for row in rows]


def test_f65_a_page_has_as_many_events_as_fit_and_one_at_least(
    address: Address, queries: Queries
) -> None:
    filled(address, MIB, MIB, MIB, MIB, 100, 8 * MIB, 100, 100)
    pages, after = [], 0
    while rows := queries.events_after(after, 1_000):
        pages.append(sizes(rows))
        after = rows[-1].position
    assert pages == [[1.0, 1.0, 1.0], [1.0, 0.0], [8.0], [0.0, 0.0]]
    assert [sizes(rows) for rows in queries.pages_of(BOX)] == pages
    assert sizes(queries.events_after(0, 2)) == [1.0, 1.0]
    assert sizes(queries.events_after(5, 1_000, stop=7)) == [8.0]
    assert sizes(queries.events_after(0, 1_000, topics=["object.StorageWritten"])) == pages[0]
    assert [row.position for row in queries.history(BOX)] == list(range(1, 9))


def test_f65_exactly_the_limit_is_a_page(address: Address, queries: Queries) -> None:
    around = len('{"puts":{"a":}}')
    filled(address, PAGE_BYTES // 2 - around, PAGE_BYTES // 2 - around, 10)
    rows = queries.events_after(0, 1_000)
    assert sum(len(row.state) for row in rows) == PAGE_BYTES
    filled_more = queries.events_after(2, 1_000)
    assert len(filled_more) == 1


def test_f65_the_feed_goes_on_with_next_and_passes_values_through_as_they_are(
    address: Address,
) -> None:
    filled(address, *[MIB] * 7)
    application = ReservationApplication(address, ManualClock())
    application.start(alarms=False)
    (row,) = application.queries.events_after(0, 1)
    shown = render_event(row, application.mapper)
    assert type(shown["data"]["puts"]["a"]) is msgspec.Raw
    client = create_app(application).test_client()
    after, answers = 0, []
    while answer := client.get(f"/events?after={after}&limit=1000"):
        if answer.json["next"] == after:
            break
        answers.append(answer)
        after = answer.json["next"]
    application.stop()
    assert [len(answer.json["events"]) for answer in answers] == [3, 3, 1]
    assert max(len(answer.data) for answer in answers) < PAGE_BYTES + 10_000
    (event,) = answers[-1].json["events"]
    assert event["data"].keys() == {"puts", "deletes", "cleared"}
    assert event["data"]["puts"]["a"] == "x" * (MIB - 2)


def test_f65_the_recorder_of_the_library_has_pages_too(
    address: Address, application: ReservationApplication
) -> None:
    for version in range(1, 6):
        application.writer.execute(Put(version, MIB))
    notifications = application.recorder.select_notifications(1, 100)
    assert [notification.id for notification in notifications] == [1, 2, 3]
    following = application.recorder.subscribe(gt=0)
    assert [next(following).id for _ in range(5)] == [1, 2, 3, 4, 5]
    assert len(application.recorder.select_events(BOX)) == 5
    assert len(application.recorder.select_events(BOX, gt=1, lte=4)) == 3


def test_f65_memory_for_pages_exports_and_checks_does_not_grow_with_the_log(
    address: Address, tmp_path: Any
) -> None:
    """120 MiB of payloads, of which no more than a page is ever in memory, some times over."""
    filled(address, *[2 * MIB - 100] * 60)
    application = ReservationApplication(address, ManualClock())
    client = create_app(application).test_client()
    store = open_store(address)
    client.get("/events?limit=1")
    tracemalloc.start()
    try:
        assert client.get("/events?limit=1000").status_code == 200
        asked = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        export_log(store, str(tmp_path / "log.jsonl"))
        exported = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert verified(address).found == 0
        checked = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        store.close()
        application.stop()
    assert asked < 6 * PAGE_BYTES
    assert exported < 10 * PAGE_BYTES
    assert checked < 20 * PAGE_BYTES
