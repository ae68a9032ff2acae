"""The way of one object's events into the log.

They go to the writer one commit at a time: while one is on its way the next gathers. If a
commit fails, nothing after it may be kept either.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reservation_expiry.domain.durable_object import ObjectEvent, StoredObject
from reservation_expiry.infrastructure.object_checkpoints import encode_checkpoint
from reservation_expiry.infrastructure.objects.checkpoint_cadence import CheckpointCadence
from reservation_expiry.infrastructure.objects.object_commands import KeepAttempts, WriteObject
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts
from reservation_expiry.infrastructure.unit_of_work import Work

Written = Callable[[BaseException | None], None]
"""Told how each commit ended: None, or why nothing of it is in the log."""

logger = logging.getLogger(__name__)


class Writer(Protocol):
    """The process's way to the log (`ObjectHost`)."""

    token: str

    def submit(self, work: Work, on_done: Callable[[Any, BaseException | None], None]) -> None: ...


class Outbox:
    """`add` events, `wait` until all are on disk; `close` it and nothing more goes out."""

    def __init__(
        self,
        object_id: str,
        stored: StoredObject,
        cadence: CheckpointCadence,
        writer: Writer,
        on_written: Written,
    ) -> None:
        self.version = stored.version  # with all that was added
        self._committed = stored.version
        self._object_id = object_id
        self._stored = stored
        self._cadence = cadence
        self._writer = writer
        self._on_written = on_written
        self._events: list[ObjectEvent] = []
        self._authors: list[str | None] = []  # of each
        self._attempts: list[AttemptFacts] = []
        self._sending = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits or is on its way."""
        return not (self._events or self._attempts or self._sending)

    @property
    def is_behind(self) -> bool:
        """Whether something that was added is not on disk."""
        return self._committed < self.version

    def add(
        self,
        events: list[ObjectEvent],
        by: str | None = None,
        attempts: Sequence[AttemptFacts] = (),
    ) -> None:
        """Takes events, all that the storage as it is now follows from, and attempts that
        ended. `by` is the name of the token whose request they come from."""
        self.version += len(events)
        self._attempts += attempts
        self._events += events
        self._authors += len(events) * (by,)
        self.send(is_current=True)

    def send(self, *, is_current: bool) -> None:
        """Hands what waits to the writer, unless something is on its way. `is_current` says
        whether the storage has nothing that is not among it."""
        if self._sending:
            return
        attempts, self._attempts = self._attempts, []
        if not self._events:
            if attempts:
                self._submit(KeepAttempts(attempts), lambda _, error: _note(error))
            return
        events, self._events = self._events, []
        authors, self._authors = self._authors, []
        version = events[-1].originator_version
        self._cadence.wrote(events)
        checkpoint = None
        if is_current and self._cadence.is_due(version, self._stored.storage):
            checkpoint = (self._object_id, version, encode_checkpoint(self._stored))
            self._cadence.was_taken(version)
        self._sending = True
        token = self._writer.token
        work = WriteObject(
            self._object_id, token, self._committed, events, checkpoint, authors, attempts
        )
        self._submit(work, lambda _, error: self._sent(version, error))

    def _submit(self, work: Work, on_done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            self._writer.submit(work, on_done)
        except Exception as error:
            self._on_written(error)

    def _sent(self, version: int, error: BaseException | None) -> None:
        self._sending = False
        if error is None:
            self._committed = version
            while self._waiting and self._waiting[0][0] <= version:
                _, future = self._waiting.popleft()
                if not future.done():
                    future.set_result(None)
        self._on_written(error)

    async def wait(self) -> None:
        """Returns once all that was added until now is on disk. Raises what `close` was given."""
        if self.is_behind:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((self.version, future))
            await future

    def close(self, why: Exception) -> None:
        """What is not on its way is gone, and who waits is told why."""
        self._events.clear()
        self._authors.clear()
        self._attempts.clear()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(why)
        self._waiting.clear()


def _note(error: BaseException | None) -> None:
    if error is not None:
        logger.warning("how an alarm ended is not kept: %s", error)
