"""A page of the database that cannot be read: what is not on it ends on time all the same.

SQLite files and a PostgreSQL server's are damaged on the disk, while nobody has them open.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from reservation_expiry.api.cli import main
from reservation_expiry.api.http import create_app
from reservation_expiry.domain import alarm as alarm_rules
from reservation_expiry.domain.durable_object import AlarmSet
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import HoldReservation
from reservation_expiry.infrastructure.errors import (
    StoreDamaged,
)
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.replay import remake as remake_module
from reservation_expiry.infrastructure.replay.remake import RemakeAlarms, RemakeReservations
from reservation_expiry.infrastructure.startup import check
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.sql.alarm_pages import AttemptsWanted
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from tests.crash.staging import hold_in, now_ms
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.objects import World
from tests.support.postgres import PostgresServer
from tests.support.server import wait_for

pytestmark = pytest.mark.real_time

NAMES = [f"seat-{number:03}" for number in range(400)]
PAGE_BYTES = {"sqlite": 4096, "postgres": 8192}


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that may be stopped, and does without fsync."""
    server = PostgresServer(fsync="off")
    try:
        yield server.start()
    finally:
        server.remove()


Damage = Callable[[Address, str, int], None]
"""Overwrites one page of a table or index with noise: the nth, or from behind."""


@pytest.fixture
def damage(request: pytest.FixtureRequest) -> Damage:
    def damage_one(address: Address, name: str, number: int) -> None:
        if isinstance(address, Path):
            damage_file(address, name, number)
        else:
            damage_server(request.getfixturevalue("own_postgres"), address, name, number)

    return damage_one


def damage_file(path: Path, name: str, number: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (name,)
    ).fetchall()
    connection.close()
    ((page,),) = pages[number : number + 1] or pages[-1:]
    overwrite(path, (page - 1) * PAGE_BYTES["sqlite"], PAGE_BYTES["sqlite"])


def damage_server(server: PostgresServer, address: PostgresAddress, name: str, number: int) -> None:
    sql(address, "CHECKPOINT")
    ((file,),) = sql(address, "SELECT pg_relation_filepath(CAST(? AS regclass))", name)
    server.stop()
    path = server.data / file
    pages = path.stat().st_size // PAGE_BYTES["postgres"]
    overwrite(path, (number % pages) * PAGE_BYTES["postgres"], PAGE_BYTES["postgres"])
    server.start()


def overwrite(path: Path, offset: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(os.urandom(size))


@pytest.fixture
def due(new_address_of_own: Callable[[], Address]) -> Address:
    """400 holds that are due, each made by itself, as by 400 requests."""
    address = new_address_of_own()
    hold_in(address, NAMES, due_at_ms=now_ms() - 100)
    return address


@pytest.fixture
def new_address_of_own(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[], Address]:
    def make() -> Address:
        if store == "sqlite":
            return tmp_path / "reservations.db"
        return request.getfixturevalue("own_postgres").address("damage")

    return make


class Seen:
    """A running application, and whether it was ready each time it was asked."""

    def __init__(self, address: Address) -> None:
        self.application = ReservationApplication(address, alarm_log=AlarmLog(BytesIO()))
        self.counts = self.application.alarm_dispatcher.counts
        self.reasons: set[tuple[str, ...]] = set()

    def __enter__(self) -> "Seen":
        self.application.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.application.stop()

    def until(self, condition: Callable[[], bool], within_seconds: float = 15) -> None:
        def look() -> bool:
            self.reasons.add(self.application.readiness().reasons)
            return condition()

        wait_for(look, within_seconds)

    def status(self, name: str) -> str:
        try:
            return self.application.get(name).status
        except StoreDamaged:
            return "damaged"

    def count(self, status: str) -> int:
        return sum(self.status(name) == status for name in NAMES)


def test_f80_one_damaged_page_of_the_log_costs_the_holds_on_it_and_no_other(
    due: Address, damage: Damage
) -> None:
    damage(due, "events", 3)
    with Seen(due) as seen:
        seen.until(lambda: seen.counts["ok"] + seen.counts["retry"] >= len(NAMES))
        failing = seen.counts["retry"]
        assert 0 < failing < 100
        assert seen.counts["ok"] == seen.count("expired") >= len(NAMES) - failing
        assert seen.counts["released"] == 0
        time.sleep(0.2)
        seen.until(lambda: True)
    assert seen.reasons == {()}, "readiness flipped"


def test_f80_what_is_on_it_is_parked_and_shown_in_the_end(
    due: Address, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarm_rules, "FIRST_RETRY_DELAY_MS", 4)
    damage(due, "events", 3)
    with Seen(due) as seen:
        seen.until(
            lambda: seen.counts["parked"] > 0 and seen.count("held") == seen.counts["parked"]
        )
        parked = seen.application.queries.parked(len(NAMES))
        assert seen.application.readiness().parked == len(parked) == seen.counts["parked"]
        assert {seen.status(i.removeprefix("reservation/")) for i in parked} == {"held"}
    assert seen.reasons == {()}


def test_f80_a_damaged_read_model_that_would_take_too_long_costs_the_holds_on_its_page(
    due: Address, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in SQLite those beside it: a row that grows on a full page wants room there."""
    monkeypatch.setattr(remake_module, "REPLAYED_EVENTS", 100)
    damage(due, "reservations", 0)
    with Seen(due) as seen:
        seen.until(lambda: seen.counts["ok"] + seen.counts["retry"] >= len(NAMES))
        assert seen.counts["ok"] > len(NAMES) / 4
        assert seen.counts["released"] == 0
    assert seen.reasons == {()}


@pytest.mark.parametrize("name", ["alarms", "alarms_by_next_run_time", "reservations"])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_f80_a_damaged_projection_is_made_anew_and_every_hold_ends(
    due: Address, damage: Damage, name: str, number: int
) -> None:
    damage(due, name, number)
    with Seen(due) as seen:
        seen.until(lambda: seen.counts["ok"] == len(NAMES))
        assert (seen.counts["retry"], seen.counts["released"]) == (0, 0)
        seen.application.hold("seat-000", 60)
        assert seen.application.sweep() == 0
    check_invariants(due)
    assert check(due) == "ready"


def test_f80_no_alarm_waits_for_a_damaged_log_of_attempts(due: Address, damage: Damage) -> None:
    with Seen(due) as seen:
        seen.until(lambda: seen.counts["ok"] == len(NAMES))
    hold_in(due, NAMES, due_at_ms=now_ms() - 100)
    damage(due, "attempts", -1)
    with Seen(due) as seen:
        seen.until(lambda: seen.counts["ok"] == len(NAMES))
        assert seen.application.queries.attempts(AttemptsWanted(), 1_000)
    check_invariants(due)
    assert check(due) == "ready"


def test_f80_alarms_are_found_damaged_before_they_are_due(
    new_address_of_own: Callable[[], Address], damage: Damage
) -> None:
    address = new_address_of_own()
    hold_in(address, NAMES, due_at_ms=now_ms() + 3_600_000, ttl_seconds=3_600)
    damage(address, "alarms", 2)
    with Seen(address) as seen:
        wait_for(lambda: tables_set_aside(address) == 1, 5)
        assert len(seen.application.queries.alarms(limit=1_000)) == len(NAMES)
    check_invariants(address)


def test_f80_alarms_are_made_anew_once_and_only_if_they_are_damaged(
    application: ReservationApplication, clock: ManualClock, address: Address
) -> None:
    application.hold("seat-1", 5)
    assert not application.alarm_dispatcher.remake(StoreDamaged("of something else"))
    execute = application.writer.execute
    assert execute(RemakeAlarms(set_aside=7)) is None
    assert execute(RemakeAlarms(set_aside=0)) == 1
    assert execute(RemakeAlarms(set_aside=0)) is None  # as another process that was slower
    clock.advance(1)
    assert execute(RemakeAlarms(set_aside=1)) == 1
    sql(address, f"DROP TABLE damaged_alarms_{clock.now_ms() - 1}")
    clock.advance(1)
    assert execute(RemakeAlarms(set_aside=1)) == 1
    assert execute(RemakeReservations(set_aside=0)) == 1
    clock.advance(5_000)
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
    assert application.get("seat-1").status == "expired"
    check_invariants(address)


def test_f80_alarms_made_anew_are_those_that_were_there(
    application: ReservationApplication, address: Address
) -> None:
    for number in range(5):
        application.hold(f"seat-{number}", 60 + number)
    application.expire("seat-3", application.clock.now_ms() + 3_600_000)
    make_object_with_an_alarm(application)
    before = sql(address, "SELECT * FROM alarms ORDER BY id")
    assert len(before) == 5
    assert application.writer.execute(RemakeAlarms(set_aside=0)) == 5
    assert sql(address, "SELECT * FROM alarms ORDER BY id") == before


def tables_set_aside(address: Address) -> int:
    session = open_store(address).session()
    session.begin()
    try:
        return session.times_set_aside("alarms")
    finally:
        session.rollback()
        session.close()


def make_object_with_an_alarm(application: ReservationApplication) -> None:
    class SetAlarm(Work):
        def run(self, unit: UnitOfWork) -> None:
            event = AlarmSet("object/Counter/foo", 1, unit.now_ms + 1_000)
            unit.append_to_object("object/Counter/foo", [event])

    application.writer.execute(SetAlarm())


def test_f80_a_log_whose_end_is_damaged_is_not_ready(
    new_address_of_own: Callable[[], Address], damage: Damage
) -> None:
    address = new_address_of_own()
    hold_in(address, NAMES[:20], due_at_ms=now_ms() - 100)
    damage(address, "events", -1)
    with Seen(address) as seen:
        seen.until(lambda: not seen.application.readiness().ready)
        (reason,) = seen.application.readiness().reasons
        assert "damaged" in reason


def test_f80_callers_whose_history_is_damaged_fail_alone(due: Address, damage: Damage) -> None:
    """However many others are in their transaction."""
    damage(due, "events", 3)
    application = ReservationApplication(due)
    application.start(alarms=False)
    answers: dict[str, BaseException | None] = {}
    try:
        for name in NAMES:
            work = HoldReservation(f"reservation/{name}", 60)
            done = partial(lambda name, _, error: answers.update({name: error}), name)
            application.writer.submit(work, done)
        wait_for(lambda: len(answers) == len(NAMES), 10)
        failed = {name for name, error in answers.items() if error is not None}
        assert {type(answers[name]) for name in failed} == {StoreDamaged}
        assert 0 < len(failed) < 100
        assert application.writer.last_error is None
        (name, *_) = failed
        assert create_app(application).test_client().get(f"/reservations/{name}").status_code == 200
        answer = (
            create_app(application)
            .test_client()
            .post(f"/reservations/{name}", json={"ttlSeconds": 60})
        )
        assert (answer.status_code, answer.json["code"]) == (500, "store-damaged")
    finally:
        application.stop()


def test_f80_a_row_that_cannot_be_decoded_is_its_own_failure(
    application: ReservationApplication, database_path: Path, clock: ManualClock
) -> None:
    """Text that is no UTF-8, in a column that is read with many others; SQLite keeps such."""
    for name in NAMES[:10]:
        application.hold(name, 5)
    spoil = "UPDATE events SET topic = CAST(x'ff' AS TEXT) WHERE originator_id LIKE '%4'"
    sql(database_path, spoil)
    clock.advance(5_000)
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
    counts = application.alarm_dispatcher.counts
    assert (counts["ok"], counts["retry"], counts["released"]) == (9, 1, 0)


def test_f80_an_object_whose_history_cannot_be_read_has_its_alarm_parked(
    new_address: Callable[[], Address], clock: ManualClock
) -> None:
    """It was looked at again every second, for ever."""

    class Sleeper(DurableObject):
        async def sleep(self, until_ms: int) -> None:
            self.ctx.storage.setAlarm(until_ms)

        async def alarm(self) -> None:
            raise AssertionError("it is not there to be run")

    async def story() -> None:
        address = new_address()
        async with World(address, Sleeper, clock=clock) as world:
            await world.stub("Sleeper").sleep(clock.now_ms() + 1_000)
        sql(address, "UPDATE events SET topic = 'nothing of ours'")
        async with World(address, Sleeper, clock=clock) as world:
            outcomes = [a.outcome for _ in range(8) for a in await world.advance(100_000)]
            assert outcomes == ["retry"] * 6 + ["parked"]
            assert world.application.queries.parked(10) == ["object/Sleeper/foo"]

    asyncio.run(story())


def test_f80_the_list_of_alarms_shows_what_of_the_damaged_ones_can_be_told(
    tmp_path: Path, damage: Damage
) -> None:
    path = tmp_path / "reservations.db"
    hold_in(path, NAMES, due_at_ms=now_ms() - 100)
    damage(path, "alarms", 2)
    listed = CliRunner().invoke(
        main, ["alarms", "list", "--limit", "1000", "--database", str(path)]
    )
    assert listed.exit_code == 0, listed.output
    unreadable = [line for line in listed.output.splitlines() if line.endswith("due, unreadable")]
    assert 0 < len(unreadable) < len(NAMES) / 2
    assert all(name in listed.output for name in NAMES)
