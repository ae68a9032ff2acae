"""Scheduled events that end their process: found alone, given up, and the others run on.

A process that ends is a host whose objects are dropped with all that they had not written,
and whose claims nobody gives back.
"""

import asyncio
from typing import Any

import pytest

from reservation_expiry.infrastructure.objects import host as host_module
from reservation_expiry.infrastructure.objects import schedule_pass
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.logs import verified
from tests.support.objects import World
from tests.support.schedules import START, Agenda, run_ends

LEASE_OVER_MS = 200_000  # of any claim


class Deadly(Agenda):
    """Its killers end their process, before they have ended themselves."""

    killers = frozenset({"killer"})

    async def processEvent(self, event: dict[str, Any]) -> None:
        world = self.env.world
        self.runs.append((event["id"], event["attempts"]))
        if event["id"] in self.killers:
            world.deaths += 1
            await world.end()
            await asyncio.sleep(3_600)


async def lives_on(address: Address, clock: ManualClock, until_ms: int, first: Any = None) -> int:
    """Processes one after the other, until that time. How many have ended."""
    ended = 0
    while clock.now_ms() < until_ms:
        async with World(address, Deadly, clock=clock) as world:
            world.deaths = 0
            if first is not None:
                await first(world)
                first = None
            while not world.deaths and clock.now_ms() < until_ms:
                scope = world.application.alarm_dispatcher.scope
                due = world.application.queries.next_look(scope, clock.now_ms())
                if due is None or due * 1000 > until_ms:
                    clock.move_to(until_ms)
                else:
                    clock.move_to(max(round(due * 1000), clock.now_ms()))
                    await world.look()
                    await settled(world)
            if world.deaths:
                ended += 1
                clock.advance(6_000)  # its lease on objects is over
    return ended


async def settled(world: World) -> None:
    while world.host.alarms.running and not world.deaths:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)


def killed(address: Address, killers: set[str], put: Any, until_ms: int) -> int:
    Deadly.runs, Deadly.killers = [], frozenset(killers)
    clock = ManualClock(START)
    deaths = asyncio.run(lives_on(address, clock, until_ms, put))
    assert verified(address).differences == []
    return deaths


def test_f82_the_killer_alone_is_given_up_and_its_neighbours_run_on_uncounted(
    address: Address,
) -> None:
    async def put(world: World) -> None:
        for schedule in ("one", "other"):
            agenda = world.stub("Deadly", schedule)
            for number in range(5):
                await agenda.scheduleEvent(f"good{number}", START + 1_000)
            await agenda.scheduleEvent("tick", START + 1_000, 60_000)
        await world.stub("Deadly", "one").scheduleEvent("killer", START + 1_000)

    until_ms = START + 20 * 60_000
    deaths = killed(address, {"killer"}, put, until_ms)
    ends = run_ends(address)
    assert [e[2:] for e in ends if e[0] == "killer"] == [
        *((attempt, "interrupted") for attempt in range(1, 7)),
        (7, "gave-up"),
    ]
    assert 8 <= deaths <= 15  # the first time, and beside the other, nobody can tell who it was
    goods = [e for e in ends if e[0].startswith("good")]
    assert (len(goods), {e[2:] for e in goods}) == (10, {(1, "ok")})
    assert {attempts for name, attempts in Deadly.runs if name != "killer"} == {0}

    async def after(world: World) -> None:
        one, other = (world.stub("Deadly", name) for name in ("one", "other"))
        (killer,) = await one.listParked()
        assert (killer["id"], killer["attempts"], killer["gaveUp"]) == ("killer", 7, 1)
        for agenda in (one, other):
            tick = await agenda.getEvent("tick")
            assert tick["runs"] + tick["missed"] >= 19
            assert tick["attempts"] == 0
        assert await other.listParked() == []

    asyncio.run(looked(address, until_ms, after))


async def looked(address: Address, now_ms: int, after: Any) -> None:
    async with World(address, Deadly, clock=ManualClock(now_ms + 60_000)) as world:
        world.deaths = 0
        await after(world)


def test_f82_a_recurring_killer_goes_on_and_is_counted_at_each_of_its_times(
    address: Address,
) -> None:
    async def put(world: World) -> None:
        agenda = world.stub("Deadly", "one")
        await agenda.scheduleEvent("killer", START + 1_000, 3_600_000)
        await agenda.scheduleEvent("tick", START + 1_000, 600_000)

    until_ms = START + 2 * 3_600_000 - 60_000
    deaths = killed(address, {"killer"}, put, until_ms)
    assert 8 + 7 <= deaths <= 8 + 7 + 7  # the second hour it is known

    async def after(world: World) -> None:
        killer = await world.stub("Deadly", "one").getEvent("killer")
        assert (killer["gaveUp"], killer["parked"], killer["runs"]) == (2, False, 0)

    asyncio.run(looked(address, until_ms, after))


def test_f82_several_killers_among_many_are_each_found(
    database_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reservation_expiry.domain.alarm.MAX_RETRIES", 1
    )  # two attempts, then given up
    killers = {"e03", "e31", "e77"}

    async def put(world: World) -> None:
        agenda = world.stub("Deadly", "one")
        for number in range(80):
            await agenda.scheduleEvent(f"e{number:02}", START + 1_000)

    until_ms = START + 3_600_000
    deaths = killed(database_path, killers, put, until_ms)
    ends = run_ends(database_path)
    assert {e[0] for e in ends if e[3] == "gave-up"} == killers
    goods = [e for e in ends if e[3] == "ok"]
    assert len(goods) == len({e[0] for e in goods}) == 77
    assert {attempts for name, attempts in Deadly.runs if name not in killers} == {0}
    assert deaths <= 3 * 2 + 1 + 3  # each alone twice, all at first, and their companies


def test_f82_what_was_under_way_when_a_process_was_only_stopped_is_not_suspected(
    database_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "STOP_SECONDS", 0.02)

    class Slow(Agenda):
        async def processEvent(self, event: dict[str, Any]) -> None:
            self.runs.append((event["id"], event["attempts"]))
            if len(self.runs) <= 3:
                await asyncio.sleep(3_600)

    async def run() -> None:
        Slow.runs = []
        async with World(database_path, Slow) as world:
            for number in range(3):
                await world.stub("Slow").scheduleEvent(f"e{number}", START)
            await world.look()
            await world.until(lambda: len(Slow.runs) == 3)
        async with World(database_path, Slow) as world:
            await world.ring()
            assert await world.stub("Slow").listEvents() == []
        assert len(Slow.runs) == 6

    asyncio.run(run())
    assert {end[2:] for end in run_ends(database_path)} == {(1, "ok")}


def test_f82_a_company_under_suspicion_has_its_time_alone_and_no_more(
    database_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_pass, "ALONE_SECONDS", 0.05)
    order: list[str] = []

    class Slow(Deadly):
        async def processEvent(self, event: dict[str, Any]) -> None:
            if self.env.world.first:
                await self.env.world.end()
                self.env.world.deaths = 1
                await asyncio.sleep(3_600)
            order.append(f"{event['id']} begins")
            if event["id"] == "slow":
                await self.env.world.go.wait()
            order.append(f"{event['id']} ends")

    async def run() -> None:
        async with World(database_path, Slow) as world:
            world.first, world.deaths = True, 0
            await world.stub("Slow").scheduleEvent("slow", START)
            await world.look()
            await settled(world)
        world.clock.advance(LEASE_OVER_MS)
        async with World(database_path, Slow, clock=world.clock) as world:
            world.first, world.deaths, world.go = False, 0, asyncio.Event()
            await world.look()
            await world.until(lambda: order == ["slow begins"])
            await world.stub("Slow").scheduleEvent("quick", START + 1)
            await asyncio.sleep(0.02)
            assert order == ["slow begins"]
            await world.until(lambda: len(order) == 3)
            world.go.set()
            await world.settled()

    asyncio.run(run())
    assert order == ["slow begins", "quick begins", "quick ends", "slow ends"]
