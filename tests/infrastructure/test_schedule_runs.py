"""Runs of scheduled events: their ends, what follows from them, and what the log says."""

import asyncio
import logging
from typing import Any

import pytest

from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.infrastructure.errors import StoreFull
from reservation_expiry.infrastructure.objects import schedule_pass
from reservation_expiry.infrastructure.objects.object_commands import WriteObject
from reservation_expiry.infrastructure.objects.tasks import HandlerTimeout
from reservation_expiry.infrastructure.replay.backup import import_log
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.database import sql
from tests.support.logs import verified
from tests.support.objects import World
from tests.support.schedules import START, Agenda, facts, fail, go_on, run_ends, story
from tests.support.zones import without_any

DAY = 86_400_000
MINUTE = 60_000


# F36: what follows a good end never makes the event run again.


def test_f36_a_zone_that_is_gone_at_run_time_leaves_one_run_and_the_reason(
    address: Address,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("report", cron="0 10 * * *", zone="Europe/Brussels")
        await agenda.scheduleEvent("other", START + DAY)
        with without_any():
            await go_on(world, 3 * DAY)
            event = await agenda.getEvent("report")
            assert (event["runs"], event["attempts"], event["parked"]) == (1, 0, True)
            assert (event["runAt"], event["lookAt"]) == (None, None)
            assert event["nextProblem"].startswith("'Europe/Brussels' is not a time zone")
            assert await agenda.listParked() == [event]
            with pytest.raises(InvalidSchedule, match="is not a time zone"):
                await agenda.redriveEvent("report")
        again = await agenda.scheduleEvent("report", cron="0 10 * * *", zone="Europe/Brussels")
        assert (again["revision"], again["nextProblem"]) == (3, None)
        assert again["runAt"] > world.clock.now_ms()

    runs = story(address, steps)
    assert runs == [("report", 3_600_000), ("other", DAY)]
    assert run_ends(address)[0] == ("report", 3_600_000, 1, "ok")


def test_f36_it_is_re_driven_when_the_zone_is_back(database_path: Any) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("report", cron="0 10 * * *", zone="Europe/Brussels")
        with without_any():
            await go_on(world, 2 * DAY)
        assert await agenda.redriveEvent("report")
        await go_on(world, 3 * DAY)
        event = await agenda.getEvent("report")
        assert (event["runs"], event["parked"], event["revision"]) == (2, False, 1)

    story(database_path, steps)


def test_f36_so_does_any_error_in_finding_the_next_time(
    address: Address, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("of ours")

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("tick", START, 1_000)
        monkeypatch.setattr(schedule_pass, "next_time_of", broken)
        await go_on(world, MINUTE)
        event = await agenda.getEvent("tick")
        assert (event["runs"], event["parked"]) == (1, True)
        assert event["nextProblem"] == "its next time cannot be found: RuntimeError('of ours')"
        monkeypatch.undo()
        assert await agenda.redriveEvent("tick")
        await go_on(world, MINUTE + 500)
        assert (await agenda.getEvent("tick"))["nextProblem"] is None

    story(address, steps)
    assert "RuntimeError: of ours" in caplog.text


def test_f36_so_does_the_end_of_time(database_path: Any) -> None:
    async def steps(world: World, agenda: Any) -> None:
        last = 9_223_372_036_854
        world.clock.move_to(last - 5)
        await agenda.scheduleEvent("tick", last - 5, 1_000)
        await world.ring()
        event = await agenda.getEvent("tick")
        assert (event["runs"], event["nextProblem"]) == (1, "there is no next time before 2262")
        assert [a.outcome for a in world.attempts] == ["ok"]

    story(database_path, steps)


def test_f36_an_event_that_ran_well_and_could_not_be_written_is_the_one_case_it_runs_again(
    database_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("once", START)

        def full(self: Any, unit: Any) -> None:
            raise StoreFull("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(WriteObject, "run", full)
            await world.look()
            await world.settled()
        world.clock.advance(1_000)
        await world.ring()
        assert await agenda.getEvent("once") is None

    assert [name for name, _ in story(database_path, steps)] == ["once", "once"]


# F37: giving up one planned time is not giving up the recurrence.


def test_f37_a_daily_event_that_fails_for_five_minutes_runs_the_next_day(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("report", cron="0 9 * * *", payload="report")
        await go_on(world, 2 * DAY)
        event = await agenda.getEvent("report")
        assert (event["runs"], event["gaveUp"], event["missed"]) == (1, 1, 0)
        assert (event["parked"], event["attempts"]) == (False, 0)
        assert await agenda.listParked() == []
        assert world.application.readiness().alarm_counts["gaveUp"] == 1

    nine = 3_600_000

    def report(agenda: Agenda) -> None:
        if nine <= agenda.ctx.now_ms() - START < nine + 5 * MINUTE:
            raise RuntimeError("on purpose")

    runs = story(address, steps, report=report)
    assert len(runs) == 8
    assert runs[0] == ("report", nine)
    assert runs[-1] == ("report", nine + DAY)
    ends = [(planned, attempt, outcome) for _, planned, attempt, outcome in run_ends(address)]
    assert ends == [
        *((nine, attempt, "failed") for attempt in range(1, 7)),
        (nine, 7, "gave-up"),
        (nine + DAY, 1, "ok"),
    ]
    assert f"its run planned for {START + nine} is given up: RuntimeError" in caplog.text
    assert verified(address).differences == []


def test_f37_where_the_period_is_shorter_than_the_retries_the_times_between_are_missed(
    address: Address,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("tick", START, 100, "tick")
        await go_on(world, 10_000)
        event = await agenda.getEvent("tick")
        # It failed at 0 and about 2 s later, ran well about 6 s after the start, and then on.
        retried = [at for _, at in Agenda.runs[:3]]
        assert retried[0] == 0
        assert 2_000 <= retried[1] <= 2_501
        assert event["runs"] + event["missed"] == 101
        assert event["missed"] == retried[2] // 100
        assert event["gaveUp"] == 0

    def tick(agenda: Agenda) -> None:
        if agenda.ctx.now_ms() - START < 6_000:
            raise RuntimeError("on purpose")

    story(address, steps, tick=tick)


def test_f37_such_an_event_that_always_fails_is_given_up_again_and_again_and_never_overlaps(
    address: Address,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("tick", START, 100, "fails")
        await go_on(world, 10 * MINUTE)
        event = await agenda.getEvent("tick")
        assert (event["runs"], event["parked"]) == (0, False)
        assert event["gaveUp"] in (3, 4)
        assert event["missed"] > 4_000

    runs = story(address, steps, fails=fail)
    assert len(runs) <= 7 * 5


def test_f37_an_occurrence_that_was_given_up_is_not_redriven_for_the_recurrence_goes_on(
    database_path: Any,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("hourly", START, 3_600_000, "fails")
        await go_on(world, 200_000)
        assert (await agenda.getEvent("hourly"))["gaveUp"] == 1
        assert not await agenda.redriveEvent("hourly")

    story(database_path, steps, fails=fail)


# F53: what ran and what was cancelled can be told from the log.


def test_f53_a_run_and_a_cancellation_are_events_of_their_own(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("ran", START + 1_000, None, {"to": "me"})
        await agenda.scheduleEvent("gone", START + 2_000)
        await agenda.scheduleEvent("moved", START + 3_000)
        await agenda.cancelEvent("gone")
        await agenda.scheduleEvent("moved", START + 4_000)
        world.clock.advance(1_007)
        await world.ring()

    story(address, steps)
    assert facts(address, "schedule.RunEnded", "schedule.EventCancelled") == [
        {
            "topic": "schedule.EventCancelled",
            "event_id": "gone",
            "revision": 2,
            "planned_at_ms": START + 2_000,
            "reason": "cancelled",
        },
        {
            "topic": "schedule.EventCancelled",
            "event_id": "moved",
            "revision": 3,
            "planned_at_ms": START + 3_000,
            "reason": "replaced",
        },
        {
            "topic": "schedule.RunEnded",
            "event_id": "ran",
            "revision": 1,
            "planned_at_ms": START + 1_000,
            "began_at_ms": START + 1_007,
            "ended_at_ms": START + 1_007,
            "attempt": 1,
            "outcome": "ok",
        },
    ]
    written = [fact.get("puts", {}) for fact in facts(address, "object.StorageWritten")]
    (put,) = [puts["event:ran"] for puts in written if "event:ran" in puts]
    assert (put["revision"], put["payload"]) == (1, {"to": "me"})
    assert verified(address).differences == []


def test_f53_a_run_that_goes_on_after_its_event_was_cancelled_has_its_end_in_the_log(
    database_path: Any,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        world.go = asyncio.Event()
        await agenda.scheduleEvent("slow", START, None, "waits")
        await world.look()
        await world.until(lambda: Agenda.runs)
        await agenda.cancelEvent("slow")
        await agenda.scheduleEvent("slow", START + 5_000, None, "waits")
        world.go.set()
        await world.settled()
        assert (await agenda.getEvent("slow"))["runs"] == 0

    story(database_path, steps, waits=lambda agenda: agenda.env.world.go.wait())
    found = facts(database_path, "schedule.RunEnded", "schedule.EventCancelled")
    assert [(f["topic"], f["revision"]) for f in found] == [
        ("schedule.EventCancelled", 1),
        ("schedule.RunEnded", 1),
    ]


def test_f53_they_go_through_an_export_an_import_and_a_rebuild(
    address: Address, new_address: Any, tmp_path: Any
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("tick", START, 1_000)
        await agenda.scheduleEvent("gone", START + DAY)
        await agenda.cancelEvent("gone")
        await go_on(world, 3_000)
        assert rebuild(world.application.writer.execute, world.application.mapper).repaired == 0

    async def goes_on(world: World, agenda: Any) -> None:
        assert (await agenda.getEvent("tick"))["runs"] == 4

    story(address, steps)
    store, copy = open_store(address), new_address()
    export_log(store, str(tmp_path / "log.jsonl"))
    store.close()
    import_log(str(tmp_path / "log.jsonl"), copy)
    assert verified(copy).digest == verified(address).digest
    story(copy, goes_on)


# F64: a run writes what it changed.


def test_f64_what_a_run_writes_does_not_grow_with_the_payload(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("big", 1, 100, "x" * 1_000_000)
        for _ in range(10):
            await world.ring()
            world.clock.advance(100)
        assert (await agenda.getEvent("big"))["runs"] == 10
        assert len((await agenda.getEvent("big"))["payload"]) == 1_000_000

    story(address, steps)
    written = [len(bytes(s)) for (s,) in sql(address, "SELECT state FROM events ORDER BY position")]
    assert written[0] > 1_000_000
    assert sum(written[1:]) < 10 * 1_000


def test_f64_nor_do_snapshots(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 1 MB every 500 events, as it was, would be 2 KB an event."""
    snapshots: list[int] = []
    run = WriteObject.run

    def noted(self: Any, unit: Any) -> None:
        if self._checkpoint is not None:
            snapshots.append(len(self._checkpoint[2]))
        run(self, unit)

    monkeypatch.setattr(WriteObject, "run", noted)
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.objects.checkpoint_cadence.CHECKPOINT_EVERY", 5
    )

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("big", 1, 100, "x" * 1_000_000)
        for _ in range(20):
            await world.ring()
            world.clock.advance(100)

    story(address, steps)
    assert len(snapshots) <= 1  # the put has as many bytes as what it put


def test_a_place_of_an_event_that_is_not_there_is_dropped(
    database_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Damaged(Agenda):
        async def damage(self) -> None:
            self.ctx.storage.put(f"due:{START:013d}:ghost", "ghost")
            self.ctx.storage.setAlarm(START)

    async def run() -> None:
        async with World(database_path, Damaged) as world:
            await world.stub("Damaged").damage()
            await world.ring()
            assert [a.outcome for a in world.attempts] == ["ok"]

    asyncio.run(run())
    assert "names an event that is not there" in caplog.text


@pytest.mark.real_time
def test_a_pass_that_is_cut_short_leaves_nothing_running_in_its_object(database_path: Any) -> None:
    async def run() -> None:
        Agenda.runs, Agenda.does = [], {"hangs": lambda agenda: asyncio.sleep(3_600)}
        async with World(database_path, Agenda, handler_limit_seconds=0.05) as world:
            await world.stub("Agenda").scheduleEvent("slow", START, None, "hangs")
            await world.look()
            await world.settled()
            assert isinstance(world.attempts[0].error, HandlerTimeout)
            (live,) = world.host._residents._live.values()
            await world.until(lambda: live.idle)

    asyncio.run(run())
