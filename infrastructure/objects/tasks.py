"""What runs of one object: handlers, work beside them, and what must run alone.

Beside the handlers run what was given to `waitUntil`, and every task that the object's
code begins by itself. All of it is the object's activity: while it runs, the object is not
idle. Work beside that does not end must not keep the object from others, so it can be
ended; a handler, which somebody waits for, is not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any, Protocol

from reservation_expiry.infrastructure.errors import StoreStopped
from reservation_expiry.infrastructure.objects.running_code import called, new_task, ours, run_as
from reservation_expiry.infrastructure.objects.transaction import (
    Waiting,
    outside_transactions,
    waits_for_us,
)

BLOCK = "blockConcurrencyWhile"
BLOCK_SECONDS = 30.0  # how long blockConcurrencyWhile may take; the original's limit, too
CANCEL_SECONDS = 1.0  # how long code that was cancelled may take to end

logger = logging.getLogger(__name__)


class HandlerTimeout(Exception):
    """A handler took longer than it may."""


class HandlerCancelled(Exception):
    """A handler ended by a CancelledError that was not of our making."""


class BlockFailed(Exception):
    """What ran under blockConcurrencyWhile failed, and the object with it."""


class Owner(Protocol):
    """The object in memory whose code runs."""

    id: str

    def refuse_if_dropped(self) -> None: ...
    def drop(self, why: BaseException) -> None: ...


class ObjectTasks:
    """`begin` handlers, run work `beside` them or `alone`; `cancel` everything."""

    __slots__ = ("_alone", "_beside", "_handlers", "_live", "_loop", "_stopping")

    def __init__(self, live: Owner) -> None:
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._handlers: set[asyncio.Task[Any]] = set()
        self._alone: set[asyncio.Task[Any]] = set()
        self._beside: set[asyncio.Task[Any]] = set()
        self._stopping = False

    @property
    def any(self) -> bool:
        return bool(self._handlers or self._alone or self._beside)

    @property
    def only_beside(self) -> bool:
        """Whether something runs, and nothing that anybody waits for."""
        return bool(self._beside) and not (self._handlers or self._alone)

    def context(self) -> Context:
        """For code of the object that begins: its own, and outside of transactions."""
        context = copy_context()
        context.run(self._enter)
        return context

    def _enter(self) -> None:
        run_as(self)
        outside_transactions()

    def began(self, task: asyncio.Task[Any]) -> None:
        """The object's code has begun a task by itself."""
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    # Handlers

    async def begin(self, method: Callable[..., Any], args: Any, kwargs: Any) -> asyncio.Task[Any]:
        """Begins a handler as soon as nothing runs that must run alone."""
        await self.ready()
        return self._make(called(method, args, kwargs), self._handlers)

    async def ready(self) -> None:
        """Returns when nothing runs that must run alone. Raises if the object is dropped."""
        while self._alone:
            if waits_for_us(self._live, BLOCK):
                raise RuntimeError(
                    f"blockConcurrencyWhile of {self._live.id} waits for a call of its own "
                    "object, which waits for it: call the method without a stub"
                )
            await asyncio.wait(self._alone)
        self._live.refuse_if_dropped()

    def why_cancelled(self) -> Exception:
        if self._stopping:
            return StoreStopped("the service is shutting down")
        return HandlerCancelled("the handler was cancelled by what it awaited")

    async def cancel_handler(self, task: asyncio.Task[Any]) -> None:
        """One that does not even end when it is cancelled takes the object with it."""
        task.cancel()
        if not (await asyncio.wait([task], timeout=CANCEL_SECONDS))[0]:
            self._live.drop(HandlerTimeout("its handler does not end"))
        elif not task.cancelled():
            task.exception()  # seen, and of no more interest

    # Work beside them

    def beside(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task = self._make(called(lambda: work, (), {}), self._beside)
        task.add_done_callback(self._beside_ended)
        return task

    def _beside_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error("work beside %s failed", self._live.id, exc_info=task.exception())

    async def end_beside(self, why: str) -> None:
        """Cancels what runs beside, which hears why. What does not end then goes on without
        its object, whose storage it cannot use any more."""
        going = set(self._beside)
        if not going:
            return
        logger.warning("%s: %d tasks that it began are cancelled", why, len(going))
        for task in going:
            task.cancel(why)
        _, left = await asyncio.wait(going, timeout=CANCEL_SECONDS)
        if left:
            logger.error("%d tasks of %s do not end", len(left), self._live.id)
            self._beside.difference_update(left)

    # What runs alone

    def alone(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
        if not callable(work):
            raise TypeError(f"blockConcurrencyWhile takes a function, not {type(work).__name__}")

        waiting = Waiting(BLOCK, self._live)
        context = self.context()
        context.run(waiting.enter)
        task = self._make(_limited(work), self._alone, context)
        task.add_done_callback(lambda task: self._alone_ended(task, waiting))
        return task

    def _alone_ended(self, task: asyncio.Task[Any], waiting: Waiting) -> None:
        waiting.ended = True
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("blockConcurrencyWhile of %s failed", self._live.id, exc_info=error)
        if error is not None or task.cancelled():
            failure = BlockFailed(f"blockConcurrencyWhile of {self._live.id} failed: {error!r}")
            failure.__cause__ = error
            self._live.drop(failure)

    def cancel(self) -> None:
        """Ends what still runs, for the process ends."""
        self._stopping = True
        for task in [*self._handlers, *self._beside, *self._alone]:
            task.cancel()

    def _make(
        self, code: Any, kind: set[asyncio.Task[Any]], context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = new_task(self._loop, code, context or self.context())
        kind.add(task)
        task.add_done_callback(kind.discard)
        return task


@ours
async def _limited(work: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(BLOCK_SECONDS):
        return await called(work, (), {})
