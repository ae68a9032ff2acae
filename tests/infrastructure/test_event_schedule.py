"""Many events on one alarm: what the original's sample gets wrong, among the rest."""

import asyncio
from typing import Any

import pytest

from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.infrastructure.objects import schedule_pass
from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.objects import World
from tests.support.schedules import START, Agenda, fail, go_on, story


def test_events_run_in_the_order_in_which_they_are_due(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        for name, at in (("zebra", 10), ("ant", 30), ("bee", 20), ("cow", 10)):
            await agenda.scheduleEvent(name, START + at)
        assert await agenda.alarm_at() == 10
        world.clock.advance(100)
        await world.ring()
        assert await agenda.listEvents() == []
        assert await agenda.alarm_at() is None

    runs = story(address, steps)
    assert [name for name, _ in runs] == ["cow", "zebra", "bee", "ant"]


def test_f25_a_recurring_event_does_not_drift_however_late_it_runs(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("tick", START + 500, repeatMs=500)
        for late in (3, 0, 120, 499, 7):  # the clock looks so many ms late
            event = await agenda.getEvent("tick")
            world.clock.move_to(event["runAt"] + late)
            await world.ring()
        event = await agenda.getEvent("tick")
        assert event["runAt"] == START + 6 * 500
        assert (event["runs"], event["missed"]) == (5, 0)

    runs = story(address, steps)
    assert [at for _, at in runs] == [503, 1_000, 1_620, 2_499, 2_507]


def test_what_was_missed_runs_once_and_is_counted(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("tick", START + 500, repeatMs=500)
        world.clock.advance(2_600)  # planned at 500, 1,000, 1,500, 2,000, 2,500
        await world.ring()
        event = await agenda.getEvent("tick")
        assert (event["runs"], event["missed"], event["runAt"]) == (1, 4, START + 3_000)

    assert len(story(address, steps)) == 1


def test_f26_a_failing_event_is_retried_alone_then_parked_while_others_run_on_time(
    address: Address,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("bad", START + 1_000, payload="fails")
        await agenda.scheduleEvent("tick", START + 1_000, repeatMs=10_000)
        await go_on(world, 200_000)
        (parked,) = await agenda.listParked()
        assert (parked["id"], parked["attempts"], parked["parked"]) == ("bad", 7, True)
        assert await agenda.redriveEvent("bad")
        assert not await agenda.redriveEvent("tick")
        await world.ring()

    runs = story(address, steps, fails=fail)
    assert [at for name, at in runs if name == "tick"] == list(range(1_000, 200_001, 10_000))
    bad = [at for name, at in runs if name == "bad"]
    assert len(bad) == 8
    assert 2_000 <= bad[1] - bad[0] <= 2_501
    assert 64_000 <= bad[6] - bad[5] <= 80_001


def test_a_slow_event_makes_no_other_late(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        world.go = asyncio.Event()
        await agenda.scheduleEvent("slow", START + 10, payload="waits")
        await agenda.scheduleEvent("quick", START + 20)
        world.clock.advance(10)
        await world.look()
        await world.until(lambda: len(Agenda.runs) == 1)
        world.clock.advance(10)
        await agenda.scheduleEvent("new", START + 5)  # F27: and one that comes meanwhile
        await world.until(lambda: len(Agenda.runs) == 3)
        assert world.host.alarms.running == 1
        world.go.set()
        await world.settled()

    runs = story(address, steps, waits=lambda agenda: agenda.env.world.go.wait())
    assert sorted(runs) == [("new", 20), ("quick", 20), ("slow", 10)]


def test_a_cancelled_or_moved_event_leaves_no_empty_run(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("a", START + 10)
        await agenda.scheduleEvent("b", START + 50)
        assert await agenda.cancelEvent("a")
        assert not await agenda.cancelEvent("a")
        assert await agenda.alarm_at() == 50
        await agenda.scheduleEvent("b", START + 90)
        assert await agenda.alarm_at() == 90
        await agenda.cancelEvent("b")
        assert await agenda.alarm_at() is None
        await go_on(world, 1_000)
        assert world.attempts == []

    assert story(address, steps) == []


def test_scheduling_its_own_id_in_its_run_is_honoured(address: Address) -> None:
    async def again(agenda: Agenda) -> None:
        await agenda.scheduleEvent("self", START + 500)

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("self", START + 10, payload="again")
        await go_on(world, 1_000)
        assert [a.outcome for a in world.attempts] == ["ok", "ok"]

    assert story(address, steps, again=again) == [("self", 10), ("self", 500)]


def test_cancelling_itself_and_scheduling_anew_in_its_run_is_honoured(
    address: Address,
) -> None:
    async def anew(agenda: Agenda) -> None:
        await agenda.cancelEvent("self")
        await agenda.scheduleEvent("self", START + 500)

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("self", START + 10, payload="anew")
        await go_on(world, 1_000)

    assert story(address, steps, anew=anew) == [("self", 10), ("self", 500)]


def test_cancelling_itself_in_its_run_is_honoured(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("self", START + 10, repeatMs=100, payload="cancels")
        await go_on(world, 1_000)
        assert await agenda.listEvents() == []

    runs = story(address, steps, cancels=lambda agenda: agenda.cancelEvent("self"))
    assert runs == [("self", 10)]


@pytest.mark.parametrize("run_at", [0, -1, 1.5, "5", None, True, 2**63])
def test_a_bad_time_is_refused_before_anything_is_stored(run_at: Any, address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        with pytest.raises(InvalidSchedule, match="runAt is a whole number"):
            await agenda.scheduleEvent("x", run_at)
        assert await agenda.listEvents() == []

    story(address, steps)


@pytest.mark.parametrize("repeat_ms", [0, -1, 99, 0.5, "500", True, 2**53])
def test_a_bad_period_is_refused_before_anything_is_stored(
    repeat_ms: Any, address: Address
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        with pytest.raises(InvalidSchedule, match="repeatMs is a whole number"):
            await agenda.scheduleEvent("x", START, repeat_ms)
        assert await agenda.listEvents() == []

    story(address, steps)


def test_lists_come_in_pages(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        for number in range(5):
            await agenda.schedule_event(f"e{number}", START + 1_000)
        first = await agenda.listEvents(limit=3)
        rest = await agenda.list_events(limit=3, after=first[-1]["id"])
        assert [event["id"] for event in first + rest] == [f"e{n}" for n in range(5)]

    story(address, steps)


def test_a_pass_that_has_gone_on_for_long_hands_over_to_the_next(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_pass, "PASS_SECONDS", 0)

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("a", START + 10)
        world.clock.advance(10)
        await world.look()
        await world.settled()
        assert await agenda.alarm_at() == 10

    assert story(address, steps) == []


def test_a_payload_that_is_refused_leaves_the_event_it_was_to_replace(
    address: Address,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("keep", START + 1_000)
        kept = await agenda.getEvent("keep")
        with pytest.raises(InvalidSchedule, match="the payload has"):
            await agenda.scheduleEvent("keep", START + 5, payload="x" * (2 * 1024 * 1024))
        assert await agenda.getEvent("keep") == kept
        assert await agenda.alarm_at() == 1_000

    story(address, steps)


def test_an_event_that_hangs_is_counted_and_parked_alone(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_pass, "RUN_SECONDS", 0.02)

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("hangs", START + 1_000, payload="hangs")
        await agenda.scheduleEvent("tick", START + 1_000, repeatMs=20_000)
        await go_on(world, 200_000)
        assert [event["id"] for event in await agenda.listParked()] == ["hangs"]

    runs = story(address, steps, hangs=lambda agenda: asyncio.sleep(60))
    assert len([name for name, _ in runs if name == "tick"]) == 10


async def cancelled(agenda: Agenda) -> None:
    raise asyncio.CancelledError


def test_a_cancellation_of_its_own_making_is_that_events_failure(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("odd", START, payload="cancelled")
        await agenda.scheduleEvent("fine", START)
        await world.ring()
        assert (await agenda.getEvent("odd"))["attempts"] == 1
        assert await agenda.getEvent("fine") is None
        assert [a.outcome for a in world.attempts] == ["ok"]

    story(address, steps, cancelled=cancelled)


def test_a_pass_over_its_time_goes_on_beginning_while_a_slow_run_holds_it_up(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_pass, "PASS_SECONDS", 0.01)

    async def steps(world: World, agenda: Any) -> None:
        world.go = asyncio.Event()
        await agenda.scheduleEvent("slow", START + 10, payload="waits")
        world.clock.advance(10)
        await world.look()
        await asyncio.sleep(0.05)
        await agenda.scheduleEvent("quick", START + 5)
        await world.until(lambda: ("quick", 10) in Agenda.runs)
        world.go.set()
        await world.settled()

    story(address, steps, waits=lambda agenda: agenda.env.world.go.wait())


def test_events_that_are_overdue_do_not_move_the_alarm_again_and_again(
    address: Address,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("past", START - 1_000)
        for number in range(3):
            world.clock.advance(1)
            await agenda.scheduleEvent(f"later{number}", START + 60_000)
        assert await agenda.alarm_at() == 0

    story(address, steps)


def test_a_subclass_may_have_a_plain_process_event(address: Address) -> None:
    seen: list[str] = []

    class Plain(EventSchedule):
        def process_event(self, event: dict[str, Any]) -> None:
            seen.append(event["payload"])

    async def run() -> None:
        async with World(address, Plain) as world:
            await world.stub("Plain").scheduleEvent("a", START, payload="hello")
            await world.ring()

    asyncio.run(run())
    assert seen == ["hello"]
