"""Leases and clocks: one that ends for others ends for the process that has it."""

import asyncio
import time
from typing import Any

import pytest

from reservation_expiry.infrastructure import clock as clock_module
from reservation_expiry.infrastructure.objects import residents
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.postgres import clock as postgres_clock
from reservation_expiry.infrastructure.stores.postgres.clock import DatabaseClock
from tests.support.objects import World


class Box(DurableObject):
    def put(self, value: int) -> None:
        self.ctx.storage.put("k", value)

    async def get(self) -> Any:
        return await self.ctx.storage.get("k")


def story(address: Address, steps: Any) -> None:
    async def run() -> None:
        async with World(address, Box) as one, World(address, Box, clock=one.clock) as other:
            await one.stub("Box").put(1)
            for world in (one, other):  # the second between two renewals is what this is about
                world.host._tending.cancel()
            await asyncio.sleep(0.02)
            await steps(one, other)

    asyncio.run(run())


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "HANDOVER_SECONDS", 0.2)


@pytest.mark.parametrize("step_ms", [4_501, 5_001, 30_000])
def test_f83_a_clock_that_steps_ahead_ends_the_lease_for_its_owner_too(
    step_ms: int, address: Address
) -> None:
    async def steps(one: World, other: World) -> None:
        one.clock.advance(step_ms)
        if step_ms > 5_000:
            await other.host.ownership.renew()
            await other.stub("Box").put(2)
            assert not one.host.ownership.is_valid()
            with pytest.raises(Exception, match="another process runs object/Box/foo"):
                await one.stub("Box").get()  # asked for anew: it is not answered from memory
        else:
            assert await one.stub("Box").get() == 1  # renewed first, a little early
        assert not one.host._residents._live or step_ms <= 5_000

    story(address, steps)


def test_f83_a_clock_that_steps_back_makes_no_lease_longer_for_its_owner(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(one: World, other: World) -> None:
        one.clock.advance(-30_000)
        assert one.host.ownership.is_valid()
        slept = clock_module.elapsed_seconds() + 4.6
        monkeypatch.setattr(
            "reservation_expiry.infrastructure.objects.ownership.elapsed_seconds", lambda: slept
        )
        assert not one.host.ownership.is_valid()

    story(address, steps)


def test_f83_time_that_the_machine_sleeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert now <= clock_module.elapsed_seconds() < now + 5
    database_clock = DatabaseClock()
    database_clock.observe(1_800_000_000_000)
    monkeypatch.setattr(postgres_clock, "elapsed_seconds", lambda: now + 30)
    assert database_clock.now_ms() >= 1_800_000_029_000
