"""What a class is written against: its base, its context, what its alarm is told."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

from reservation_expiry.domain.ids import ObjectId
from reservation_expiry.infrastructure.objects.changes import Fact
from reservation_expiry.infrastructure.objects.storage import Storage
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts


class DurableObject:
    """The base class. An instance is one object: its name is its identity.

    It is made when the object is first needed and dropped when it has been idle, so what
    must last belongs into `self.ctx.storage`. A subclass may have `fetch(request)`,
    `alarm(alarm_info)` (or without the argument), and any other public method, each plain
    or async.
    """

    def __init__(self, ctx: "Context", env: Any) -> None:
        self.ctx = ctx
        self.env = env


class Host(Protocol):
    """What a context hands on to: the object in memory."""

    def now_ms(self) -> int: ...
    def should_yield(self) -> bool: ...
    def cut_off(self) -> int: ...
    def record(self, fact: Fact) -> None: ...
    def keep_attempt(self, attempt: AttemptFacts) -> None: ...
    def count(self, what: str) -> None: ...
    def beside(self, work: Awaitable[Any]) -> asyncio.Task[Any]: ...
    def alone(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]: ...


class Context:
    """`ctx`: who the object is, its storage, and work beside its handlers."""

    def __init__(self, identity: ObjectId, storage: Storage, live: Host) -> None:
        self.id = identity
        self.storage = storage
        self._live = live

    def now_ms(self) -> int:
        """The service's clock, by which alarms are due: Unix milliseconds."""
        return self._live.now_ms()

    def should_yield(self) -> bool:
        """Whether a handler that could go on for long had better end: the process stops, or
        another one wants the object."""
        return self._live.should_yield()

    def cut_off(self) -> int:
        """How many alarms, the one that runs among them, a process had under way together
        when it ended, or stood still for longer than its lease; 0 if none has."""
        return self._live.cut_off()

    def record(self, fact: Fact) -> None:
        """Has an event in the log, beside what is written to the storage."""
        self._live.record(fact)

    def keep_attempt(self, attempt: AttemptFacts) -> None:
        """Has it kept how a run ended that this object made, with what it writes now."""
        self._live.keep_attempt(attempt)

    def count(self, what: str) -> None:
        """Counts it for `/readyz`."""
        self._live.count(what)

    def waitUntil(self, work: Awaitable[Any]) -> None:
        """Runs `work` beside the handler. What it raises is logged and fails nothing."""
        self._live.beside(work)

    def blockConcurrencyWhile(self, work: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """Runs `work` while no other call of this object begins. Returns what it returns.

        If it raises, the object is dropped from memory and made anew.
        """
        return self._live.alone(work)

    wait_until = waitUntil
    block_concurrency_while = blockConcurrencyWhile


class AlarmInfo(Mapping[str, Any]):
    """What an alarm handler is told, as attributes and as a mapping.

    `scheduledTime` is what the alarm was set to, in Unix milliseconds; `retryCount` how
    many attempts at it have begun before this one; `isRetry` whether there were any.
    """

    __slots__ = ("isRetry", "retryCount", "scheduledTime")

    def __init__(self, scheduled_time: int, retry_count: int) -> None:
        self.scheduledTime = scheduled_time
        self.retryCount = retry_count
        self.isRetry = retry_count > 0

    scheduled_time = property(lambda self: self.scheduledTime)
    retry_count = property(lambda self: self.retryCount)
    is_retry = property(lambda self: self.isRetry)

    def __getitem__(self, key: str) -> Any:
        if key in ("scheduledTime", "retryCount", "isRetry"):
            return getattr(self, key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(("scheduledTime", "retryCount", "isRetry"))

    def __len__(self) -> int:
        return 3

    def __repr__(self) -> str:
        return f"AlarmInfo({dict(self)})"
