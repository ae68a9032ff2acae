"""What is under way of objects' alarms here, and what suspects get of it."""

import asyncio
from typing import Any

import pytest

from reservation_expiry.domain.alarm import MAX_ATTEMPTS
from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.claims import Claimed
from reservation_expiry.infrastructure.alarms.company import new_token
from reservation_expiry.infrastructure.objects import alarm_crowd
from reservation_expiry.infrastructure.objects.alarm_crowd import AlarmCrowd
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.objects import World

START = 1_800_000_000_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the crowd goes by: change it."""
    at = [1_000.0]
    monkeypatch.setattr(alarm_crowd.time, "monotonic", lambda: at[0])
    return at


def claim(name: str, *, together: int = 1, cut_off: int = 0) -> Claim:
    return Claim(f"object/A/{name}", AlarmSlot(1, 1, new_token(together)), b"", cut_off)


def test_what_was_claimed_is_under_way_until_it_has_ended_or_was_given_back(
    now: list[float],
) -> None:
    crowd, a = AlarmCrowd(), claim("a")
    crowd.expect(Claimed([a, claim("b")]))
    assert crowd.look()[0].under_way == 2
    crowd.began("a's task", a)
    assert crowd.look()[0].under_way == 2
    now[0] += 5.1  # b was given back, and nobody has said so
    assert crowd.look()[0].under_way == 1
    crowd.ended("a's task")
    assert crowd.look()[0].under_way == 0


def test_reservations_are_no_crowd(now: list[float]) -> None:
    crowd = AlarmCrowd()
    crowd.expect(Claimed([Claim("reservation/a-1", AlarmSlot(1), b"")]))
    assert crowd.look()[0].under_way == 0


def test_f73_suspects_have_the_process_to_themselves_for_a_while(now: list[float]) -> None:
    crowd, suspect = AlarmCrowd(), claim("a", cut_off=2)
    crowd.expect(Claimed([suspect]))
    assert not crowd.is_open
    crowd.began(1, suspect)
    now[0] += 9.9
    assert not crowd.is_open
    now[0] += 0.2
    assert crowd.is_open


def test_f73_or_until_they_have_ended(now: list[float]) -> None:
    crowd, suspect = AlarmCrowd(), claim("a", cut_off=2)
    crowd.expect(Claimed([suspect]))
    crowd.began(1, suspect)
    assert crowd.ended(1)  # which others have waited for
    assert crowd.is_open


def test_f73_suspects_wait_for_what_runs_and_not_for_long(now: list[float]) -> None:
    crowd, slow = AlarmCrowd(), claim("slow")
    crowd.began(1, slow)
    assert crowd.look()[0].may_wait
    crowd.expect(Claimed(waiting=True))
    assert not crowd.is_open
    crowd.expect(Claimed())  # a look at reservations meanwhile
    assert not crowd.is_open
    now[0] += 2.1
    assert crowd.is_open
    assert not crowd.look()[0].may_wait


def test_f73_those_that_were_alone_are_told_apart(now: list[float]) -> None:
    crowd = AlarmCrowd()
    for by, each in enumerate(
        (claim("fresh"), claim("prime", cut_off=2), claim("one of two", together=2))
    ):
        crowd.began(by, each)
    found, _ = crowd.look()
    assert (found.fresh, found.prime) == (("object/A/fresh",), ("object/A/prime",))
    crowd.expect(Claimed(joined=[claim("fresh", together=2)]))
    assert crowd.look()[0].fresh == ()


# Through processes that end, one after the other.


class Innocent(DurableObject):
    told: list[tuple[str, int]]

    def set(self, at_ms: int) -> None:
        self.ctx.storage.setAlarm(at_ms)

    async def alarm(self, info: Any) -> None:
        self.env.world.told.append((self.ctx.id.name, info.retryCount))
        await asyncio.sleep(0)


class Killer(Innocent):
    async def alarm(self, info: Any) -> None:
        self.env.world.told.append((self.ctx.id.name, info.retryCount))
        await self.env.world.end()
        self.env.world.ended = True
        await asyncio.sleep(3_600)


def test_f73_only_the_killer_is_counted_and_parked(address: Address) -> None:
    told: list[tuple[str, int]] = []
    clock = ManualClock(START)

    async def process(first: bool) -> None:
        async with World(address, Innocent, Killer, clock=clock) as world:
            world.told, world.ended = told, False
            if first:
                await world.stub("Killer", "k").set(START)
                for number in range(20):
                    await world.stub("Innocent", f"i{number}").set(START)
            while not world.ended and await world.look():
                while world.host.alarms.running and not world.ended:
                    await asyncio.sleep(0.001)
        clock.advance(200_000)

    for number in range(MAX_ATTEMPTS + 4):
        asyncio.run(process(first=number == 0))
    killer = [count for name, count in told if name == "k"]
    assert killer[-1] == MAX_ATTEMPTS - 1
    assert len(killer) <= MAX_ATTEMPTS + 2
    assert {count for name, count in told if name != "k"} == {0}
    assert {name for name, _ in told} == {"k", *(f"i{n}" for n in range(20))}

    async def look() -> list[str]:
        async with World(address, Innocent, Killer, clock=clock) as world:
            return world.application.queries.parked(10)

    assert asyncio.run(look()) == ["object/Killer/k"]
