"""The writer, for code on an event loop: results as futures, one wake-up for a commit.

The writer ends everything of a commit in one go. Waking the loop for each would cost more
than the commit does, so what ends while the loop has not yet woken shares one wake-up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from reservation_expiry.infrastructure.unit_of_work import Work
from reservation_expiry.infrastructure.writer import OnDone, Writer

logger = logging.getLogger(__name__)


def settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Ends a future, unless its caller has given it up."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class LoopWriter:
    """`execute` and `submit` on `loop`; what they call back is called there."""

    def __init__(self, writer: Writer, loop: asyncio.AbstractEventLoop) -> None:
        self._writer = writer
        self._loop = loop
        # Appended to by the writer's thread, emptied by the loop's: both ends of a deque are
        # safe, and a wake-up too many finds it empty.
        self._ended: deque[tuple[OnDone, Any, BaseException | None]] = deque()

    def execute(self, work: Work) -> "asyncio.Future[Any]":
        """As `Writer.execute`, to be awaited; given up by its caller, it is still carried out."""
        future = self._loop.create_future()
        self.submit(work, partial(settle, future))
        return future

    def submit(self, work: Work, on_done: OnDone) -> None:
        """As `Writer.submit`; `on_done` is called on the loop."""
        self._writer.submit(work, self._told(on_done))

    def _told(self, on_done: OnDone) -> Callable[[Any, BaseException | None], None]:
        def told(result: Any, error: BaseException | None) -> None:
            self._ended.append((on_done, result, error))
            if len(self._ended) == 1:
                self._wake()

        return told

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            logger.warning("a commit was answered after the event loop had ended")

    def _tell(self) -> None:
        ended = self._ended
        try:
            while ended:
                on_done, result, error = ended.popleft()
                on_done(result, error)
        finally:
            if ended:  # one of them raised
                self._loop.call_soon(self._tell)
