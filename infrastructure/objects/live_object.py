"""One object in memory, and the way of its writes into the log.

Handlers read and write `stored` at once. What they wrote is gathered in `changes`,
becomes events when the running code next lets go of the event loop (or on `sync()`, or
at its end), and goes to the writer one commit at a time: while one is on its way the
next gathers. A reply waits until everything that its handler could have seen is on
disk. If a commit fails, nothing after it may be kept either: the object is dropped, and
whoever waited is told.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from reservation_expiry.domain.durable_object import ObjectEvent, ObjectId, StoredObject
from reservation_expiry.infrastructure.alarms.claims import Claim
from reservation_expiry.infrastructure.errors import ObjectDropped
from reservation_expiry.infrastructure.object_snapshots import encode_snapshot
from reservation_expiry.infrastructure.objects.changes import Changes, Fact
from reservation_expiry.infrastructure.objects.durable_object import Context, DurableObject
from reservation_expiry.infrastructure.objects.object_commands import WriteObject
from reservation_expiry.infrastructure.objects.running_code import guarded
from reservation_expiry.infrastructure.objects.snapshot_cadence import SnapshotCadence
from reservation_expiry.infrastructure.objects.storage import Storage
from reservation_expiry.infrastructure.objects.tasks import BlockFailed, HandlerTimeout, ObjectTasks
from reservation_expiry.infrastructure.objects.transaction import Turns
from reservation_expiry.infrastructure.unit_of_work import Work

logger = logging.getLogger(__name__)


class Owner(Protocol):
    """The process's side, for its objects (`host.py`)."""

    token: str

    def now_ms(self) -> int: ...
    def should_yield(self, object_id: str) -> bool: ...
    def count(self, what: str) -> None: ...
    def submit(self, work: Work, on_done: Callable[[Any, BaseException | None], None]) -> None: ...
    def notice(self, at_ms: int) -> None: ...
    def forget(self, live: "LiveObject") -> None: ...


class LiveObject:
    """`make` it, `run` handlers on it, `flush` and `durable` its writes, `drop` it."""

    def __init__(
        self,
        identity: ObjectId,
        stored: StoredObject,
        cadence: SnapshotCadence,
        parked: bool,
        owner: Owner,
    ) -> None:
        self.identity = identity
        self.id = str(identity)
        self.stored = stored
        self.instance: DurableObject | None = None
        self.dropped: BaseException | None = None
        self.active = 0  # uses by the host under way
        self.last_used = 0.0  # event loop's time
        self.alarm_turn = asyncio.Lock()
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._parked = parked
        self._running: Claim | None = None
        self._touched = False  # whether the alarm was set or deleted since it began to run
        self._changes = Changes()
        self._flush_planned = False
        self._flushed_alarm = stored.alarm_at_ms
        self._version = self._committed = stored.version
        self._cadence = cadence
        self._outbox: list[ObjectEvent] = []
        self._sending = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.tasks = ObjectTasks(self)
        self.turns = Turns()

    # Running code (`tasks.py` has what runs)

    def make(self, object_class: type, env: Any) -> None:
        """Makes the instance. Raises what its constructor raises."""
        self._has_handler = callable(getattr(object_class, "alarm", None))
        context = Context(self.identity, Storage(self), self)
        self.instance = guarded(self.tasks.context().run, object_class, context, env)

    async def run(self, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """What the handler returns, or raises, once all it did and saw is on disk."""
        task = await self.tasks.begin(method, args, kwargs)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise self.tasks.why_cancelled() from None
            raise
        finally:
            await self.durable()

    async def run_limited(self, method: Callable[..., Any], seconds: float) -> Any:
        """`run`, for so long at most. Raises HandlerTimeout; a handler that does not even
        end when it is cancelled takes the object in memory with it."""
        task = await self.tasks.begin(method, (), {})
        try:
            if not (await asyncio.wait([task], timeout=seconds))[0]:
                await self.tasks.cancel_handler(task)
                raise HandlerTimeout(f"the handler took longer than {seconds:g} s")
            if task.cancelled():
                raise self.tasks.why_cancelled()
            return task.result()
        except asyncio.CancelledError:
            await self.tasks.cancel_handler(task)
            raise
        finally:
            if not isinstance(self.dropped, HandlerTimeout):
                await self.durable()

    @property
    def idle(self) -> bool:
        """Whether nothing runs, nothing waits to be written, and nobody waits."""
        return not (self.active or self.tasks.any or self._changes or self._outbox or self._sending)

    @property
    def lingers(self) -> bool:
        """Whether it would be idle but for work beside its handlers."""
        return not self.active and self.tasks.only_beside

    # What storage reads and writes (the protocol `transaction.Data`)

    def read(self, key: str) -> bytes | None:
        return self.stored.storage.get(key)

    def keys(self, start: str | None, end: str | None, reverse: bool) -> Iterator[str]:
        return self.stored.storage.irange(start, end, (True, False), reverse)

    def write(self, key: str, value: bytes) -> None:
        self.stored.storage[key] = value
        self._changes.values[key] = value
        self._plan_flush()

    def delete(self, key: str) -> bool:
        if self.stored.storage.pop(key, None) is None:
            return False
        self._changes.values[key] = None
        self._plan_flush()
        return True

    def clear(self) -> None:
        self.stored.storage.clear()
        self._changes.clear()
        self._set_alarm(None)

    def record(self, fact: Fact) -> None:
        """Has an event in the log, with whatever else is written now."""
        self._changes.facts.append(fact)
        self._plan_flush()

    def get_alarm(self) -> int | None:
        if self._parked or (self._running is not None and not self._touched):
            return None
        return self.stored.alarm_at_ms

    def set_alarm(self, at_ms: int | None) -> None:
        self._changes.alarm = at_ms
        self._set_alarm(at_ms)

    def _set_alarm(self, at_ms: int | None) -> None:
        self.stored.alarm_at_ms = at_ms
        self._touched = True
        self._parked = False
        self._plan_flush()

    def now_ms(self) -> int:
        return self._owner.now_ms()

    def cut_off(self) -> int:
        return 0 if self._running is None else self._running.cut_off

    def count(self, what: str) -> None:
        self._owner.count(what)

    def should_yield(self) -> bool:
        return self._owner.should_yield(self.id)

    def refuse_without_handler(self) -> None:
        if not self._has_handler:
            raise TypeError(
                f"the class {self.identity.class_name} needs an alarm() method for its alarms"
            )

    def refuse_if_dropped(self) -> None:
        if self.dropped is not None:
            raise self._refusal()

    def _refusal(self) -> Exception:
        if isinstance(self.dropped, BlockFailed):
            return self.dropped
        refusal = ObjectDropped(f"{self.id} was dropped: {self.dropped}")
        refusal.__cause__ = self.dropped
        return refusal

    # The alarm's run (`alarms.py` decides; this keeps the slot)

    def begin_alarm(self, claim: Claim) -> bool:
        """Whether this alarm is still what the slot is set to, and begins to run now."""
        if self.stored.alarm_at_ms != claim.state.scheduled_time:
            return False
        self._running, self._touched, self._parked = claim, False, False
        return True

    def end_alarm(self, *, well: bool) -> bool:
        """Ends the run. Whether the slot is as it was, neither set nor deleted since."""
        self._running = None
        untouched = not self._touched
        if well and untouched and self.dropped is None:
            self._changes.handled = self.stored.alarm_at_ms
            self.stored.alarm_at_ms = None
            self._plan_flush()
        return untouched

    def alarm_was_parked(self) -> None:
        """The clock gave it up, for having begun too often, before it came to us."""
        self._parked = self._running is None

    def park_alarm(self) -> None:
        self._parked = not self._touched

    # The way into the log

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Makes events of what was written, and sends them off unless others are under way."""
        self._flush_planned = False
        if self.dropped is not None or not self._changes:
            return
        changes, self._changes = self._changes, Changes()
        events = list(changes.events(self.id, self._version, self._flushed_alarm))
        self._flushed_alarm = self.stored.alarm_at_ms
        self._version += len(events)
        self._outbox += events
        self._send()

    def _send(self) -> None:
        if self._sending or not self._outbox:
            return
        events, self._outbox = self._outbox, []
        version = events[-1].originator_version
        snapshot = None
        self._cadence.wrote(events)
        if not self._changes and self._cadence.is_due(version, self.stored.storage):
            snapshot = (self.id, version, encode_snapshot(self.stored))
            self._cadence.was_taken(version)
        self._sending = True
        work = WriteObject(self.id, self._owner.token, self._committed, events, snapshot)
        try:
            self._owner.submit(work, lambda _, error: self._sent(version, error))
        except Exception as error:
            self.drop(error)

    def _sent(self, version: int, error: BaseException | None) -> None:
        self._sending = False
        if error is not None:
            logger.warning("%s could not be written and is dropped: %s", self.id, error)
            self.drop(error)
            return
        self._committed = version
        while self._waiting and self._waiting[0][0] <= version:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
        if self.dropped is None and self.stored.alarm_at_ms is not None:
            self._owner.notice(self.stored.alarm_at_ms)
        self._send()

    async def durable(self) -> None:
        """Returns once all that was written until now is on disk. Raises why it is not."""
        self.flush()
        if self.dropped is not None and (self._changes or self._committed < self._version):
            raise self._refusal()
        if self._committed < self._version:
            future = self._loop.create_future()
            self._waiting.append((self._version, future))
            await future

    def drop(self, why: BaseException) -> None:
        """Gives it up: what is not on its way to the disk is gone, and nothing more runs."""
        if self.dropped is not None:
            return
        self.dropped = why
        self._outbox.clear()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(self._refusal())
        self._waiting.clear()
        self.turns.refuse(self._refusal())
        self._owner.forget(self)
