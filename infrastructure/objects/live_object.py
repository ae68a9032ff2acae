"""One object in memory: what runs on it, what it holds, and the way of its writes into the log.

Handlers read and write `memory` at once. What they wrote becomes events when the running code
next lets go of the event loop (or on `sync()`, or at its end), and goes to the outbox. A reply
waits until everything that its handler could have seen is on disk. If a commit fails, the
object is dropped, and whoever waited is told.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from reservation_expiry.domain.durable_object import StoredObject
from reservation_expiry.domain.ids import ObjectId
from reservation_expiry.infrastructure.acting import acting
from reservation_expiry.infrastructure.errors import ObjectDropped
from reservation_expiry.infrastructure.objects.changes import Fact
from reservation_expiry.infrastructure.objects.checkpoint_cadence import CheckpointCadence
from reservation_expiry.infrastructure.objects.durable_object import Context, DurableObject
from reservation_expiry.infrastructure.objects.memory import Memory
from reservation_expiry.infrastructure.objects.outbox import Outbox, Writer
from reservation_expiry.infrastructure.objects.running_code import guarded
from reservation_expiry.infrastructure.objects.storage import Storage
from reservation_expiry.infrastructure.objects.tasks import BlockFailed, HandlerTimeout, ObjectTasks
from reservation_expiry.infrastructure.objects.transaction import Turns
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts

logger = logging.getLogger(__name__)


class Owner(Writer, Protocol):
    """The process's side, for its objects (`host.py`)."""

    def now_ms(self) -> int: ...
    def should_yield(self, object_id: str) -> bool: ...
    def count(self, what: str) -> None: ...
    def wake_for(self, at_ms: int) -> None: ...
    def forget(self, live: "LiveObject") -> None: ...


class LiveObject:
    """`make` it, `run` handlers on it, `flush` and `durable` its writes, `drop` it.

    Its parts: `memory` (storage and alarm), `tasks` (what runs), `turns` (of transactions),
    and an outbox.
    """

    def __init__(
        self,
        identity: ObjectId,
        stored: StoredObject,
        cadence: CheckpointCadence,
        parked: bool,
        owner: Owner,
    ) -> None:
        self.identity = identity
        self.id = str(identity)
        self.instance: DurableObject | None = None
        self.dropped: BaseException | None = None
        self.active = 0  # uses by the host under way
        self.last_used = 0.0  # event loop's time
        self.alarm_turn = asyncio.Lock()
        self.memory = Memory(stored, parked, self._before_change, self._plan_flush)
        self._by: str | None = None  # whose request changed what is not flushed yet
        self.tasks = ObjectTasks(self)
        self.turns = Turns()
        self._outbox = Outbox(self.id, stored, cadence, owner, self._written)
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._flush_planned = False

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
        at_rest = self._outbox.is_empty and not self.memory.is_changed
        return at_rest and not (self.active or self.tasks.any)

    @property
    def lingers(self) -> bool:
        """Whether it would be idle but for work beside its handlers."""
        return not self.active and self.tasks.only_beside

    # What its storage and its context ask

    def now_ms(self) -> int:
        return self._owner.now_ms()

    def cut_off(self) -> int:
        return self.memory.cut_off()

    def record(self, fact: Fact) -> None:
        self.memory.record(fact)

    def keep_attempt(self, attempt: AttemptFacts) -> None:
        self.memory.keep_attempt(attempt)

    def count(self, what: str) -> None:
        self._owner.count(what)

    def should_yield(self) -> bool:
        return self._owner.should_yield(self.id)

    def beside(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        return self.tasks.beside(work)

    def alone(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
        return self.tasks.alone(work)

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

    # The way into the log

    def _before_change(self) -> None:
        """What one request and what the next one changes are events of their own."""
        by = acting.get()
        if by != self._by:
            self.flush()
            self._by = by

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Makes events of what was written, and sends them off unless others are under way."""
        self._flush_planned = False
        if self.dropped is None and self.memory.is_changed:
            events, attempts = self.memory.take(self.id, self._outbox.version)
            self._outbox.add(events, self._by, attempts)

    def _written(self, error: BaseException | None) -> None:
        if error is not None:
            logger.warning("%s could not be written and is dropped: %s", self.id, error)
            self.drop(error)
            return
        alarm_at_ms = self.memory.stored.alarm_at_ms
        if self.dropped is None and alarm_at_ms is not None:
            self._owner.wake_for(alarm_at_ms)
        self._outbox.send(is_current=not self.memory.is_changed)

    async def durable(self) -> None:
        """Returns once all that was written until now is on disk. Raises why it is not."""
        self.flush()
        if self.dropped is not None and (self.memory.is_changed or self._outbox.is_behind):
            raise self._refusal()
        await self._outbox.wait()

    def drop(self, why: BaseException) -> None:
        """Gives it up: what is not on its way to the disk is gone, and nothing more runs."""
        if self.dropped is not None:
            return
        self.dropped = why
        self._outbox.close(self._refusal())
        self.turns.refuse(self._refusal())
        self._owner.forget(self)
