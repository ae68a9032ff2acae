"""The host: the durable objects of one process, on one event loop.

It takes calls, hands writes to the writer and the objects' alarms to `alarms.py`, and tends
the lease that keeps the objects its own. Everything here runs on the loop, but `submit`'s
answers come from the writer's thread.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.domain.ids import ObjectId
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import ObjectElsewhere, Overloaded, StoreStopped
from reservation_expiry.infrastructure.loop_writer import settle
from reservation_expiry.infrastructure.objects.alarms import (
    HANDLER_LIMIT_SECONDS,
    ObjectAlarmRunner,
)
from reservation_expiry.infrastructure.objects.live_object import LiveObject
from reservation_expiry.infrastructure.objects.ownership import Ownership
from reservation_expiry.infrastructure.objects.residents import (
    HANDOVER_POLL_SECONDS,
    NoSuchMethod,
    Residents,
)
from reservation_expiry.infrastructure.objects.running_code import (
    guarded,
    unwatch_tasks,
    watch_tasks,
)
from reservation_expiry.infrastructure.objects.stub import Namespace
from reservation_expiry.infrastructure.unit_of_work import Work

MAX_CALLS = 1_000  # under way at once
IDLE_SECONDS = 10.0  # an object that nobody used for so long is dropped from memory
STOP_SECONDS = 8.0  # how long handlers under way may take when the process stops
TEND_SECONDS = 1.0

logger = logging.getLogger(__name__)


class ObjectHost:
    """Runs the objects of `classes`, by class name, on `application`'s log and alarms.

    `start()` on the event loop that they are to run on, `stop()` there too. Their alarms are
    claimed by the application's alarm clock from `start()` on.
    """

    def __init__(
        self,
        application: ReservationApplication,
        classes: Mapping[str, type],
        *,
        handler_limit_seconds: float = HANDLER_LIMIT_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._application = application
        self.classes: Mapping[str, type] = dict(classes)
        self.env: Any = None
        self.ownership = Ownership(application, self)
        self.token = self.ownership.token
        self.alarms = ObjectAlarmRunner(self, application.alarm_dispatcher, handler_limit_seconds)
        self._idle_seconds = idle_seconds
        self._residents = Residents(self, self.classes, application.mapper)
        self._calls = 0
        self.accepting = False  # new requests and alarms
        self._closed = True  # calls, which those under way may still make for a while
        self._tending: asyncio.Task[None] | None = None
        application.alarm_dispatcher.objects = self.alarms

    def namespace(self, class_name: str) -> Namespace:
        """The binding that hands out stubs of one class."""
        return Namespace(self, class_name)

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        watch_tasks(self.loop)
        await self.ownership.renew()
        self.accepting, self._closed = True, False
        self._tending = self.loop.create_task(self._tend())

    async def stop(self) -> None:
        """Takes nothing new, waits for what is under way, cancels what does not end, and lets
        go of all objects."""
        if self._tending is None:
            return
        self.accepting = False
        deadline = self.loop.time() + STOP_SECONDS
        while self._is_busy() and self.loop.time() < deadline:
            await asyncio.sleep(HANDOVER_POLL_SECONDS)
        self._closed = True
        for live in self._residents:
            live.tasks.cancel()
        await self.alarms.stop()
        for live in self._residents:
            try:
                await live.durable()
            except ReservationExpiryError as error:
                logger.error("%s: %s", live.id, error)
        self._tending.cancel()
        self._tending = None
        await self.ownership.leave()
        unwatch_tasks(self.loop)

    async def call(self, identity: ObjectId, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Runs a public method of an object. Raises what it raises, NoSuchMethod, or
        StoreError: Overloaded, ObjectElsewhere, ObjectDropped among them."""
        if self._closed:
            raise StoreStopped("the service is shutting down")
        if self._calls >= MAX_CALLS:
            raise Overloaded(f"{MAX_CALLS} calls of objects are under way")
        self._calls += 1
        try:
            return await self.using(
                identity, lambda live: live.run(public_method(live, method), *args, **kwargs)
            )
        finally:
            self._calls -= 1

    async def using(self, identity: ObjectId, use: Callable[[LiveObject], Any]) -> Any:
        """Has the object in memory and its own while `use` runs."""
        live = await self._residents.find(identity)
        live.active += 1
        try:
            result = await use(live)
            if live.dropped is not None or not self.ownership.is_valid():
                await self._assure(live)
            return result
        finally:
            live.active -= 1
            live.last_used = self.loop.time()

    async def _assure(self, live: LiveObject) -> None:
        """Returns if the object is ours now. Raises ObjectElsewhere if it was taken over."""
        if not self.ownership.is_valid():
            await self.ownership.renew()
        if isinstance(live.dropped, ObjectElsewhere):
            raise live.dropped

    async def execute(self, work: Work) -> Any:
        """`Writer.execute`, awaited."""
        future = self.loop.create_future()
        self.submit(work, partial(settle, future))
        return await future

    def _is_busy(self) -> bool:
        objects = any(not live.idle for live in self._residents)
        return bool(self._calls or self.alarms.running or objects)

    # What a LiveObject asks of its owner

    def now_ms(self) -> int:
        return self._application.clock.now_ms()

    def should_yield(self, object_id: str) -> bool:
        return not self.accepting or self._residents.is_wanted(object_id)

    def count(self, what: str) -> None:
        self._application.alarm_dispatcher.counts[what] += 1

    def submit(self, work: Work, on_done: Callable[[Any, BaseException | None], None]) -> None:
        """Hands it to the writer; `on_done` is called on the loop."""
        self._application.writer.submit(work, partial(self._back_on_the_loop, on_done))

    def _back_on_the_loop(self, on_done: Callable[..., None], *outcome: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(on_done, *outcome)
        except RuntimeError:
            logger.warning("a commit was answered after the event loop had ended")

    def wake_for(self, at_ms: int) -> None:
        self._application.alarm_clock.wake_for(at_ms)

    def forget(self, live: LiveObject) -> None:
        self._residents.forget(live)

    def park(self, object_ids: list[str]) -> None:
        """Tells objects in memory that the clock has given their alarms up."""
        for object_id in object_ids:
            live = self._residents.here(object_id)
            if live is not None:
                live.memory.alarm_was_parked()

    def objects_here(self) -> set[str]:
        return self._residents.ids()

    def drop_lost(self, object_ids: set[str]) -> None:
        """Drops objects that another process has taken over."""
        for object_id in object_ids:
            live = self._residents.here(object_id)
            if live is not None:
                live.drop(ObjectElsewhere(f"another process took {object_id} over"))

    async def _tend(self) -> None:
        """Renews the lease, drops what is idle, hands over what others want."""
        renewed = time.monotonic()
        while True:
            pause = TEND_SECONDS
            try:
                if time.monotonic() - renewed >= TEND_SECONDS:
                    renewed = time.monotonic()
                    await self.ownership.renew(self.alarms.claims())
                    old = self.loop.time() - self._idle_seconds
                    await self._residents.let_go([o for o in self._residents if o.last_used < old])
                if self.ownership.shared:
                    wanted = self._application.queries.wanted_objects
                    await self._residents.hand_over(await asyncio.to_thread(wanted, self.token))
                    pause = HANDOVER_POLL_SECONDS
            except ReservationExpiryError as error:
                logger.warning("the objects' lease was not renewed: %s", error)
            except Exception:  # without tending the lease would end, and never be renewed
                logger.exception("tending the objects failed; it is tried again")
            await asyncio.sleep(pause)


def public_method(live: LiveObject, name: str) -> Callable[..., Any]:
    """Raises NoSuchMethod for what callers must not reach."""
    method = None if name.startswith("_") or name in ("alarm", "ctx", "env") else name
    found: Any = guarded(getattr, live.instance, method, None) if method else None
    if not callable(found):
        raise NoSuchMethod(f"{live.identity.class_name} has no public method {name}()")
    return cast(Callable[..., Any], found)
