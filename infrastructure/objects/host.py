"""The host: the durable objects of one process, on one event loop.

An object is found in memory, or made from its log once no other process has it; it is
let go of when it has been idle for a while, or when another process wants it. Everything
here runs on the loop, but `take` and what the writer calls back.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from sortedcontainers import SortedDict

from reservation_expiry.domain.durable_object import ObjectId, StoredObject
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import ObjectElsewhere, Overloaded, StoreStopped
from reservation_expiry.infrastructure.object_snapshots import decode_snapshot
from reservation_expiry.infrastructure.objects.alarms import (
    HANDLER_LIMIT_SECONDS,
    ObjectAlarmRunner,
)
from reservation_expiry.infrastructure.objects.live_object import LiveObject
from reservation_expiry.infrastructure.objects.object_commands import (
    Acquired,
    AcquireObject,
    ReleaseObjects,
)
from reservation_expiry.infrastructure.objects.ownership import Ownership
from reservation_expiry.infrastructure.objects.running_code import (
    guarded,
    unwatch_tasks,
    watch_tasks,
)
from reservation_expiry.infrastructure.objects.snapshot_cadence import ROW_BYTES, SnapshotCadence
from reservation_expiry.infrastructure.objects.stub import Namespace
from reservation_expiry.infrastructure.unit_of_work import Work

MAX_CALLS = 1_000  # under way at once
MAX_OBJECTS = 10_000  # in memory
IDLE_SECONDS = 10.0  # an object that nobody used for so long is dropped from memory
HANDOVER_SECONDS = 5.0  # how long a call waits for another process to let go of the object
HANDOVER_POLL_SECONDS = 0.02
LINGER_SECONDS = 2.0  # how long work that nobody waits for may keep it from another process
STOP_SECONDS = 8.0  # how long handlers under way may take when the process stops
TEND_SECONDS = 1.0

logger = logging.getLogger(__name__)


class NoSuchMethod(AttributeError):
    """The object's class has no public method of that name."""


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
        self.classes = dict(classes)
        self.env: Any = None
        self.ownership = Ownership(application, self)
        self.token = self.ownership.token
        self.alarms = ObjectAlarmRunner(self, application.alarm_handler, handler_limit_seconds)
        self._idle_seconds = idle_seconds
        self._live: dict[str, LiveObject] = {}
        self._making: dict[str, asyncio.Future[LiveObject]] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        self._wanted: dict[str, float] = {}  # since when, in the loop's time
        self._calls = 0
        self.accepting = False  # new requests and alarms
        self._closed = True  # calls, which those under way may still make for a while
        self._tending: asyncio.Task[None] | None = None
        application.alarm_handler.objects = self.alarms

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
        for live in self._live.values():
            live.tasks.cancel()
        await self.alarms.stop()
        for live in list(self._live.values()):
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
        live = await self._find(identity)
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

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(work, done)
        return await future

    def _is_busy(self) -> bool:
        objects = any(not live.idle for live in self._live.values())
        return bool(self._calls or self.alarms.running or objects)

    # What a LiveObject asks of its owner

    def now_ms(self) -> int:
        return self._application.clock.now_ms()

    def should_yield(self, object_id: str) -> bool:
        return not self.accepting or object_id in self._wanted

    def count(self, what: str) -> None:
        self._application.alarm_handler.counts[what] += 1

    def submit(self, work: Work, on_done: Callable[[Any, BaseException | None], None]) -> None:
        """Hands it to the writer; `on_done` is called on the loop."""
        self._application.writer.submit(work, partial(self._back_on_the_loop, on_done))

    def _back_on_the_loop(self, on_done: Callable[..., None], *outcome: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(on_done, *outcome)
        except RuntimeError:
            logger.warning("a commit was answered after the event loop had ended")

    def notice(self, at_ms: int) -> None:
        self._application.alarm_clock.notice(at_ms)

    def forget(self, live: LiveObject) -> None:
        if self._live.get(live.id) is live:
            del self._live[live.id]

    def park(self, object_ids: list[str]) -> None:
        """Tells objects in memory that the clock has given their alarms up."""
        for object_id in object_ids:
            live = self._live.get(object_id)
            if live is not None:
                live.memory.alarm_was_parked()

    def objects_here(self) -> set[str]:
        return set(self._live)

    def drop_lost(self, object_ids: set[str]) -> None:
        """Drops objects that another process has taken over."""
        for object_id in object_ids & self._live.keys():
            self._live[object_id].drop(ObjectElsewhere(f"another process took {object_id} over"))

    # Finding and making objects, and letting go of them

    async def _find(self, identity: ObjectId) -> LiveObject:
        key = str(identity)
        while True:
            leaving = self._leaving.get(key)
            if leaving is not None:
                await leaving.wait()
                continue
            live = self._live.get(key)
            if live is not None:
                if not self.ownership.is_valid():
                    await self.ownership.renew()
                if live.dropped is None and key not in self._leaving:
                    return live
                continue
            making = self._making.get(key)
            if making is None:
                # In a context of nobody's: it is not the activity of the object that calls.
                making = self.loop.create_task(self._make(identity), context=Context())
                self._making[key] = making
                making.add_done_callback(lambda _: self._making.pop(key, None))
            made = await asyncio.shield(making)
            # Handed over before we had our turn, it is to be asked for again; dropped by its
            # own constructor's work, it is not to be tried for ever.
            if not isinstance(made.dropped, ObjectElsewhere):
                made.refuse_if_dropped()

    async def _make(self, identity: ObjectId) -> LiveObject:
        object_class = self.classes.get(identity.class_name)
        if object_class is None:
            raise NoSuchMethod(f"there is no class {identity.class_name} here")
        if len(self._live) >= MAX_OBJECTS:
            await self._make_room()
        acquired = await self._acquire(str(identity))
        live = self._read(identity, acquired)
        self._live[live.id] = live
        live.last_used = self.loop.time()
        try:
            live.make(object_class, self.env)
        except BaseException as error:
            live.drop(error)
            await self._free(live.id)
            raise
        return live

    async def _free(self, object_id: str) -> None:
        """Keeps no row for an object that is not here."""
        try:
            await self.execute(ReleaseObjects([object_id], self.token))
        except ReservationExpiryError as error:
            logger.warning("%s stays ours until the lease ends: %s", object_id, error)

    async def _acquire(self, object_id: str) -> Acquired:
        deadline = self.loop.time() + HANDOVER_SECONDS
        while True:
            acquired = await self.execute(AcquireObject(object_id, self.token))
            if acquired is not None:
                return acquired
            if self.loop.time() > deadline:
                raise ObjectElsewhere(
                    f"another process runs {object_id} and did not let go of it "
                    f"within {HANDOVER_SECONDS:.0f} s"
                )
            await asyncio.sleep(HANDOVER_POLL_SECONDS)

    def _read(self, identity: ObjectId, acquired: Acquired) -> LiveObject:
        key, storage = str(identity), SortedDict()
        stored, snapshot_version = StoredObject(storage=storage), 0
        if acquired.snapshot is not None:
            _, snapshot_version, data = acquired.snapshot
            stored = decode_snapshot(key, snapshot_version, data, storage)
        for row in acquired.events:
            stored.apply(self._application.mapper.decode(key, *row))
        parked = acquired.alarm is not None and acquired.alarm[1] is None
        since = sum(ROW_BYTES + len(state) for _, _, state in acquired.events)
        cadence = SnapshotCadence(snapshot_version, since)
        return LiveObject(identity, stored, cadence, parked, self)

    async def _make_room(self) -> None:
        """Drops the longest unused objects; if none is idle, those that only linger."""
        await self._let_go(self._longest_unused(lambda live: live.idle))
        if len(self._live) >= MAX_OBJECTS:
            lingering = self._longest_unused(lambda live: live.lingers)
            await self._end_work_beside(lingering, f"{MAX_OBJECTS} objects are in memory")
            await self._let_go(lingering)
        if len(self._live) >= MAX_OBJECTS:
            raise Overloaded(f"{MAX_OBJECTS} objects are in use")

    def _longest_unused(self, which: Callable[[LiveObject], bool]) -> list[LiveObject]:
        found = [live for live in self._live.values() if which(live)]
        return sorted(found, key=lambda live: live.last_used)[: MAX_OBJECTS // 10]

    async def _end_work_beside(self, objects: list[LiveObject], why: str) -> None:
        """Ends what keeps these in memory and nobody waits for, all at once."""
        await asyncio.gather(
            *(live.tasks.end_beside(f"{live.id} is let go of: {why}") for live in objects)
        )
        for live in objects:
            with suppress(ReservationExpiryError):  # it is dropped, and has said why
                await live.durable()

    async def _let_go(self, objects: list[LiveObject]) -> None:
        """Drops idle objects from memory, and says that others may have them."""
        going = [live for live in objects if live.idle and live.id not in self._leaving]
        if not going:
            return
        for live in going:
            self._leaving[live.id] = asyncio.Event()
            live.drop(ObjectElsewhere("it was idle"))
        try:
            await self.execute(ReleaseObjects([live.id for live in going], self.token))
        finally:
            for live in going:
                self._leaving.pop(live.id).set()

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
                    await self._let_go([o for o in self._live.values() if o.last_used < old])
                if self.ownership.shared:
                    await self._hand_over()
                    pause = HANDOVER_POLL_SECONDS
            except ReservationExpiryError as error:
                logger.warning("the objects' lease was not renewed: %s", error)
            except Exception:  # without tending the lease would end, and never be renewed
                logger.exception("tending the objects failed; it is tried again")
            await asyncio.sleep(pause)

    async def _hand_over(self) -> None:
        wanted = await asyncio.to_thread(self._application.queries.wanted_objects, self.token)
        now = self.loop.time()
        self._wanted = {key: self._wanted.get(key, now) for key in wanted}
        here = [self._live[key] for key in wanted if key in self._live]
        # What is wanted and not in memory was dropped after a failure: it only has to be freed.
        stray = [k for k in wanted if k not in self._live and k not in self._making]
        if stray:
            await self.execute(ReleaseObjects(stray, self.token))
        late = [o for o in here if o.lingers and now - self._wanted[o.id] >= LINGER_SECONDS]
        await self._end_work_beside(late, "another process wants it")
        await self._let_go(here)


def public_method(live: LiveObject, name: str) -> Callable[..., Any]:
    """Raises NoSuchMethod for what callers must not reach."""
    method = None if name.startswith("_") or name in ("alarm", "ctx", "env") else name
    found = guarded(getattr, live.instance, method, None) if method else None
    if not callable(found):
        raise NoSuchMethod(f"{live.identity.class_name} has no public method {name}()")
    return found
