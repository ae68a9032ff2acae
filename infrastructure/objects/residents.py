"""The objects that a process has in memory: found, made from their logs, let go of.

An object is made once no other process has it; it leaves when it has been idle for a while,
when another process wants it, or when there is no room.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol

from sortedcontainers import SortedDict

from reservation_expiry.domain.durable_object import StoredObject
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.domain.ids import ObjectId
from reservation_expiry.infrastructure.errors import ObjectElsewhere, Overloaded
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.object_checkpoints import decode_checkpoint
from reservation_expiry.infrastructure.objects.checkpoint_cadence import (
    ROW_BYTES,
    CheckpointCadence,
)
from reservation_expiry.infrastructure.objects.live_object import LiveObject, Owner
from reservation_expiry.infrastructure.objects.object_commands import (
    Acquired,
    AcquireObject,
    FreeObjects,
)
from reservation_expiry.infrastructure.objects.ownership import Ownership
from reservation_expiry.infrastructure.unit_of_work import Work

MAX_OBJECTS = 10_000  # in memory
HANDOVER_SECONDS = 5.0  # how long a call waits for another process to let go of the object
HANDOVER_POLL_SECONDS = 0.02
LINGER_SECONDS = 2.0  # how long work that nobody waits for may keep it from another process

logger = logging.getLogger(__name__)


class NoSuchMethod(AttributeError):
    """The object's class has no public method of that name."""


class Process(Owner, Protocol):
    """The process whose objects they are (`ObjectHost`)."""

    env: Any
    loop: asyncio.AbstractEventLoop
    ownership: Ownership

    async def execute(self, work: Work) -> Any: ...


class Residents:
    """`find` an object, `let_go` of some, `hand_over` what others want. Used on the loop."""

    def __init__(self, process: Process, classes: Mapping[str, type], mapper: EventMapper) -> None:
        self._process = process
        self._classes = classes
        self._mapper = mapper
        self._live: dict[str, LiveObject] = {}
        self._making: dict[str, asyncio.Future[LiveObject]] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        self._wanted: dict[str, float] = {}  # since when, in the loop's time

    def __iter__(self) -> Iterator[LiveObject]:
        return iter(list(self._live.values()))

    def here(self, object_id: str) -> LiveObject | None:
        """The object, if it is in memory."""
        return self._live.get(object_id)

    def ids(self) -> set[str]:
        return set(self._live)

    def is_wanted(self, object_id: str) -> bool:
        """Whether another process has asked for it."""
        return object_id in self._wanted

    def forget(self, live: LiveObject) -> None:
        if self._live.get(live.id) is live:
            del self._live[live.id]

    async def find(self, identity: ObjectId) -> LiveObject:
        key = str(identity)
        while True:
            leaving = self._leaving.get(key)
            if leaving is not None:
                await leaving.wait()
                continue
            live = self._live.get(key)
            if live is not None:
                if not self._process.ownership.is_valid():
                    await self._process.ownership.renew()
                if live.dropped is None and key not in self._leaving:
                    return live
                continue
            making = self._making.get(key)
            if making is None:
                # In a context of nobody's: it is not the activity of the object that calls.
                making = self._process.loop.create_task(self._make(identity), context=Context())
                self._making[key] = making
                making.add_done_callback(lambda _: self._making.pop(key, None))
            made = await asyncio.shield(making)
            # Handed over before we had our turn, it is to be asked for again; dropped by its
            # own constructor's work, it is not to be tried for ever.
            if not isinstance(made.dropped, ObjectElsewhere):
                made.refuse_if_dropped()

    async def _make(self, identity: ObjectId) -> LiveObject:
        object_class = self._classes.get(identity.class_name)
        if object_class is None:
            raise NoSuchMethod(f"there is no class {identity.class_name} here")
        if len(self._live) >= MAX_OBJECTS:
            await self._make_room()
        acquired = await self._acquire(str(identity))
        live = self._read(identity, acquired)
        self._live[live.id] = live
        live.last_used = self._process.loop.time()
        try:
            live.make(object_class, self._process.env)
        except BaseException as error:
            live.drop(error)
            await self._free(live.id)
            raise
        return live

    async def _free(self, object_id: str) -> None:
        """Keeps no row for an object that is not here."""
        try:
            await self._process.execute(FreeObjects([object_id], self._process.token))
        except ReservationExpiryError as error:
            logger.warning("%s stays ours until the lease ends: %s", object_id, error)

    async def _acquire(self, object_id: str) -> Acquired:
        deadline = self._process.loop.time() + HANDOVER_SECONDS
        while True:
            work = AcquireObject(object_id, self._process.token)
            acquired: Acquired | None = await self._process.execute(work)
            if acquired is not None:
                return acquired
            if self._process.loop.time() > deadline:
                raise ObjectElsewhere(
                    f"another process runs {object_id} and did not let go of it "
                    f"within {HANDOVER_SECONDS:.0f} s"
                )
            await asyncio.sleep(HANDOVER_POLL_SECONDS)

    def _read(self, identity: ObjectId, acquired: Acquired) -> LiveObject:
        key, storage = str(identity), SortedDict()
        stored, checkpoint_version = StoredObject(storage=storage), 0
        if acquired.checkpoint is not None:
            _, checkpoint_version, data = acquired.checkpoint
            stored = decode_checkpoint(key, checkpoint_version, data, storage)
        for row in acquired.events:
            stored.apply(self._mapper.decode(key, *row))
        parked = acquired.alarm is not None and acquired.alarm[1] is None
        since = sum(ROW_BYTES + len(state) for _, _, state in acquired.events)
        cadence = CheckpointCadence(checkpoint_version, since)
        return LiveObject(identity, stored, cadence, parked, self._process)

    async def _make_room(self) -> None:
        """Drops the longest unused objects; if none is idle, those that only linger."""
        await self.let_go(self._longest_unused(lambda live: live.idle))
        if len(self._live) >= MAX_OBJECTS:
            lingering = self._longest_unused(lambda live: live.lingers)
            await self._end_work_beside(lingering, f"{MAX_OBJECTS} objects are in memory")
            await self.let_go(lingering)
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

    async def let_go(self, objects: list[LiveObject]) -> None:
        """Drops idle objects from memory, and says that others may have them."""
        going = [live for live in objects if live.idle and live.id not in self._leaving]
        if not going:
            return
        for live in going:
            self._leaving[live.id] = asyncio.Event()
            live.drop(ObjectElsewhere("it was idle"))
        try:
            await self._process.execute(
                FreeObjects([live.id for live in going], self._process.token)
            )
        finally:
            for live in going:
                self._leaving.pop(live.id).set()

    async def hand_over(self, wanted: list[str]) -> None:
        """Lets go of what other processes have asked for, once it can be."""
        now = self._process.loop.time()
        self._wanted = {key: self._wanted.get(key, now) for key in wanted}
        here = [self._live[key] for key in wanted if key in self._live]
        # What is wanted and not in memory was dropped after a failure: it only has to be freed.
        stray = [k for k in wanted if k not in self._live and k not in self._making]
        if stray:
            await self._process.execute(FreeObjects(stray, self._process.token))
        late = [o for o in here if o.lingers and now - self._wanted[o.id] >= LINGER_SECONDS]
        await self._end_work_beside(late, "another process wants it")
        await self.let_go(here)
