"""Objects on a real database and a manual clock, with the alarm clock turned by hand."""

import asyncio
from collections.abc import Callable
from typing import Any

from reservation_expiry.infrastructure.alarms.attempt import Attempt, Claim
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.objects.entrypoint import Bindings
from reservation_expiry.infrastructure.objects.host import ObjectHost
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock


class World:
    """One process with objects. `async with World(address, Class) as world:`"""

    def __init__(
        self, address: Address, *classes: type, clock: ManualClock | None = None, **options: Any
    ) -> None:
        self.clock = clock or ManualClock()
        prepare(address)
        self.application = ReservationApplication(address, self.clock)
        self.host = ObjectHost(self.application, {c.__name__: c for c in classes}, **options)
        spaces = {name: self.host.namespace(name) for name in self.host.classes}
        self.host.env = Bindings(spaces | {"world": self})
        self.attempts: list[Attempt] = []
        self.application.alarm_dispatcher.report = self.attempts.extend

    async def __aenter__(self) -> "World":
        self.application.start(alarms=False)
        await self.host.start()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self.host.stop()
        await asyncio.to_thread(self.application.stop)

    def stub(self, class_name: str, name: str = "foo") -> Any:
        return self.host.namespace(class_name).getByName(name)

    async def look(self) -> list[Claim]:
        """One look of the alarm clock: what is due is claimed and begins to run."""
        claims = await asyncio.to_thread(self.application.alarm_dispatcher.claim)
        self.host.alarms.start([c for c in claims if c.id.startswith("object/")])
        await asyncio.sleep(0)
        return claims

    async def ring(self) -> list[Attempt]:
        """Runs what is due now, and what that makes due, to its end."""
        before = len(self.attempts)
        await self.settled()  # what was begun before
        while await self.look():
            await self.settled()
        return self.attempts[before:]

    async def end(self) -> None:
        """Ends it as kill -9 would, for all that others can see: what it has not written is
        lost, and nobody gives back what it has claimed."""
        self.application.writer._accepting = False
        self.host._tending.cancel()
        for live in list(self.host._residents._live.values()):
            live.drop(RuntimeError("its process has ended"))
        for task in list(self.host.alarms._running):
            task.cancel()

    async def settled(self) -> None:
        while self.host.alarms.running:
            await asyncio.sleep(0.001)

    async def advance(self, by_ms: int) -> list[Attempt]:
        self.clock.advance(by_ms)
        return await self.ring()

    async def until(self, condition: Callable[[], Any]) -> None:
        for _ in range(2_000):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it did not come to that")
