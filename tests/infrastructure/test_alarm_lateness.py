"""What an alarm's log line says of time: how late the attempt began, and how long it took."""

import asyncio
import json
from io import BytesIO
from typing import Any

import pytest

from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.objects import World


class Slow(DurableObject):
    """Its handler, and its constructor, take as long as a test says: the clock moves by it."""

    making_ms = handling_ms = 0
    broken = fails = False

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        env.world.clock.advance(Slow.making_ms)
        if Slow.broken:
            raise RuntimeError("on purpose")

    def set(self, at_ms: int) -> None:
        self.ctx.storage.setAlarm(at_ms)

    def alarm(self) -> None:
        self.env.world.clock.advance(Slow.handling_ms)
        if Slow.fails:
            raise RuntimeError("on purpose")


CASES = {
    "a handler of 1.5 s that begins 15 ms late": ({}, "ok", 15, 1_500),
    "one that fails": ({"fails": True}, "retry", 15, 1_500),
    "a constructor that fails after 40 ms": ({"broken": True, "making_ms": 40}, "retry", 15, 40),
}


@pytest.mark.parametrize("case", CASES)
def test_f52_lateness_is_how_late_it_began_and_duration_another_figure(
    case: str, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, outcome, lateness_ms, duration_ms = CASES[case]

    async def story() -> dict[str, Any]:
        log = BytesIO()
        async with World(address, Slow) as world:
            due_ms = world.clock.now_ms() + 1_000
            await world.stub("Slow").set(due_ms)
        monkeypatch.setattr(Slow, "handling_ms", 1_500)
        for name, value in options.items():
            monkeypatch.setattr(Slow, name, value)
        async with World(address, Slow, clock=world.clock) as world:
            world.clock.move_to(due_ms + 15)
            AlarmLog(log).write(await world.ring())
        return json.loads(log.getvalue())

    line = asyncio.run(story())
    assert (line["outcome"], line["latenessMs"]) == (outcome, lateness_ms)
    assert line["durationMs"] == duration_ms
