"""What programs import: `from reservation_expiry import Reservations`.

The rules and stores have their own suites; here it is tried that the facade hands on what
it is given, begins and ends its threads, and costs the command line nothing.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reservation_expiry
from reservation_expiry import (
    DatabaseRefused,
    DomainError,
    DurableObject,
    EventSchedule,
    ReservationExpiryError,
    Reservations,
    StoreError,
)
from reservation_expiry.domain.events import AlarmScheduled, Expired, Held
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from tests.support.server import wait_for

NewAddress = Callable[[], Address]


def text_of(address: Address) -> str:
    return address.url if isinstance(address, PostgresAddress) else os.fspath(address)


@pytest.fixture
def reservations(new_address: NewAddress) -> Iterator[Reservations]:
    """Of a database that nobody has prepared; its alarms do not run."""
    with Reservations(text_of(new_address()), alarms=False) as opened:
        yield opened


def test_a_hold_is_found_listed_and_told(reservations: Reservations) -> None:
    held = reservations.hold("seat-12", 30)
    assert held.expires_at_ms - held.created_at_ms == 30_000
    assert reservations.get("seat-12") == held
    assert reservations.get("seat-13") is None
    told = list(reservations.history("seat-12"))
    assert [type(logged.event) for logged in told] == [Held, AlarmScheduled]
    assert [(logged.position, logged.name, logged.version) for logged in told] == [
        (1, "seat-12", 1),
        (2, "seat-12", 2),
    ]
    assert list(reservations.events()) == told
    assert list(reservations.events(after=1)) == told[1:]
    assert list(reservations.parked()) == []
    assert reservations.redrive("seat-12") is True
    assert reservations.redrive("seat-13") is False


def test_reservations_are_found_by_status_prefix_and_time(reservations: Reservations) -> None:
    first = reservations.hold("seat-1", 60)
    reservations.hold("seat-2", 600)
    reservations.hold("table-1", 600)
    assert [each.name for each in reservations.find()] == ["seat-1", "seat-2", "table-1"]
    assert [each.name for each in reservations.find(prefix="seat-")] == ["seat-1", "seat-2"]
    assert [each.name for each in reservations.find(status="expired")] == []
    due = reservations.find(due_before_ms=first.expires_at_ms + 1)
    assert [each.name for each in due] == ["seat-1"]


def test_more_than_a_page_is_read_page_by_page(
    reservations: Reservations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reservation_expiry.reservations.PAGE", 2)
    names = [f"seat-{number}" for number in range(5)]
    for name in names:
        reservations.hold(name, 600)
    assert [each.name for each in reservations.find()] == names
    assert [logged.position for logged in reservations.events()] == list(range(1, 11))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda opened: opened.hold("UPPER", 30), DomainError),
        (lambda opened: opened.hold("seat-12", 4), DomainError),
        (lambda opened: opened.get("x"), DomainError),
        (lambda opened: opened.history("x"), DomainError),
        (lambda opened: opened.redrive("Counter/"), DomainError),
    ],
)
def test_what_the_rules_refuse_is_raised_at_the_call(
    reservations: Reservations, call: Callable[[Reservations], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(reservations)


@pytest.mark.real_time
def test_a_hold_ends_by_itself_and_nothing_is_printed(
    new_address: NewAddress, capfd: pytest.CaptureFixture[str]
) -> None:
    with Reservations(text_of(new_address())) as reservations:
        reservations.hold("seat-12", 5)
        wait_for(lambda: reservations.readiness().alarm_counts.get("ok") == 1, 10)
        state = reservations.get("seat-12")
        assert state is not None
        assert (state.status, state.expiration_count) == ("expired", 1)
        assert reservations.readiness().ready
        assert type(list(reservations.history("seat-12"))[-1].event) is Expired
    assert capfd.readouterr().out == ""


class Counter(DurableObject):
    async def add(self, number: int) -> int:
        total: int = (await self.ctx.storage.get("total") or 0) + number
        self.ctx.storage.put("total", total)
        return total

    async def greeting(self) -> str:
        return str(self.env.greeting)


def test_objects_run_on_the_programs_event_loop(reservations: Reservations) -> None:
    async def story() -> None:
        async with reservations.objects(Counter, env={"greeting": "hello"}) as bindings:
            stub = bindings.Counter.getByName("foo")
            assert (await stub.add(2), await stub.add(3)) == (2, 5)
            assert await stub.greeting() == "hello"
            with pytest.raises(RuntimeError):
                async with reservations.objects(Counter):
                    pass
        async with reservations.objects(Counter) as bindings:
            assert await bindings.Counter.getByName("foo").add(1) == 6

    asyncio.run(story())
    assert {logged.name for logged in reservations.events()} == {"Counter/foo"}


@pytest.mark.real_time
def test_a_schedule_runs_on_the_programs_event_loop(new_address: NewAddress) -> None:
    ran = asyncio.Event()

    class Reminders(EventSchedule):
        async def processEvent(self, event: dict[str, object]) -> None:
            ran.set()

    async def story(opened: Reservations) -> None:
        async with opened.objects(Reminders) as bindings:
            await bindings.Reminders.getByName("alice").scheduleEvent("tea", runAt=1)
            await asyncio.wait_for(ran.wait(), 10)

    with Reservations(text_of(new_address())) as opened:
        asyncio.run(story(opened))


def test_its_threads_end_with_the_block(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Reservations(tmp_path / "reservations.db") as reservations:
        assert set(threading.enumerate()) > before
        with pytest.raises(RuntimeError):
            reservations.start()
    assert set(threading.enumerate()) == before
    reservations.stop()
    with pytest.raises(StoreError):
        reservations.get("seat-12")
    with reservations:
        assert reservations.get("seat-12") is None


def test_a_database_that_is_none_is_refused_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(DatabaseRefused):
        Reservations("mysql://nobody@nowhere/nothing")
    (tmp_path / "notes.txt").write_text("not a database, but a note of a few words\n" * 100)
    with pytest.raises(DatabaseRefused):
        Reservations(tmp_path / "notes.txt").start()
    assert set(threading.enumerate()) == before


def test_every_name_that_is_promised_is_there() -> None:
    for name in reservation_expiry.__all__:
        assert getattr(reservation_expiry, name).__name__ == name
    assert set(reservation_expiry.__all__) == set(reservation_expiry._HOMES)
    assert set(reservation_expiry.__all__) <= set(dir(reservation_expiry))
    assert issubclass(StoreError, ReservationExpiryError)
    with pytest.raises(AttributeError, match="Reservation2"):
        reservation_expiry.Reservation2  # noqa: B018


def test_the_package_alone_imports_nothing_else_of_it() -> None:
    program = (
        "import sys; before = set(sys.modules); import reservation_expiry;"
        "print(sorted(set(sys.modules) - before))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "['reservation_expiry']\n"
