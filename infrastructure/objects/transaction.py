"""`storage.transaction()`: all of a closure's writes, or none.

What the closure writes goes into an overlay that only it sees, and on to the object when
it ends. Which overlay a storage call belongs to follows the flow of the code (a context
variable), so the closure may use its argument or `ctx.storage` alike.

Transactions of one object run one after the other, in the order in which they were asked
for. One that takes too long is given up, so that the others do not wait for ever.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Protocol

from reservation_expiry.infrastructure.objects.changes import UNTOUCHED, Changes

TRANSACTION = "transaction"
TRANSACTION_SECONDS = 30.0  # how long one may keep the others waiting


class TransactionTimeout(Exception):
    """A transaction took longer than it may. Nothing of it was kept."""


class Data(Protocol):
    """What storage reads and writes: the object itself, or a transaction on it."""

    def read(self, key: str) -> bytes | None: ...
    def keys(self, start: str | None, end: str | None, reverse: bool) -> Iterator[str]: ...
    def write(self, key: str, value: bytes) -> None: ...
    def delete(self, key: str) -> bool: ...
    def clear(self) -> None: ...
    def get_alarm(self) -> int | None: ...
    def set_alarm(self, at_ms: int | None) -> None: ...


class Transacted(Protocol):
    """The object that transactions are on."""

    id: str

    @property
    def turns(self) -> "Turns": ...
    @property
    def memory(self) -> Data: ...

    def refuse_if_dropped(self) -> None: ...
    def beside(self, work: Awaitable[Any]) -> asyncio.Task[Any]: ...


class Waiting:
    """Something of an object that waits for the code within it: a transaction, or what
    blocks its concurrency. Code within goes by the flow, through calls of other objects."""

    def __init__(self, kind: str, live: object) -> None:
        self.kind = kind
        self.live = live
        self.ended = False

    def enter(self) -> None:
        """Has the current context be within this."""
        _within.set((*_within.get(), self))


_within: ContextVar[tuple[Waiting, ...]] = ContextVar("within", default=())


def waits_for_us(live: object, kind: str) -> bool:
    """Whether something of this kind of the object waits for the running code."""
    return any(w.live is live and w.kind == kind and not w.ended for w in _within.get())


class Transaction(Waiting):
    """The overlay of one transaction, which is `expired` when it took too long."""

    def __init__(self, data: Transacted) -> None:
        super().__init__(TRANSACTION, data)
        self.data = data
        self._below = data.memory
        self.expired = False
        self._changes = Changes()

    def enter(self) -> None:
        super().enter()
        _current.set(self)

    def refuse_if_expired(self) -> None:
        if self.expired:
            raise TransactionTimeout(f"a transaction may take {TRANSACTION_SECONDS:g} s")

    def read(self, key: str) -> bytes | None:
        if key in self._changes.values:
            return self._changes.values[key]
        return None if self._changes.cleared else self._below.read(key)

    def keys(self, start: str | None, end: str | None, reverse: bool) -> Iterator[str]:
        below = () if self._changes.cleared else self._below.keys(start, end, False)
        written = self._changes.values
        keys = {key for key in below if key not in written}
        keys.update(
            key
            for key, value in written.items()
            if value is not None and (start is None or key >= start) and (end is None or key < end)
        )
        return iter(sorted(keys, reverse=reverse))

    def write(self, key: str, value: bytes) -> None:
        self._changes.values[key] = value

    def delete(self, key: str) -> bool:
        found = self.read(key) is not None
        self._changes.values[key] = None
        return found

    def clear(self) -> None:
        self._changes.clear()

    def get_alarm(self) -> int | None:
        if self._changes.alarm is UNTOUCHED:
            return self._below.get_alarm()
        return self._changes.alarm

    def set_alarm(self, at_ms: int | None) -> None:
        self._changes.alarm = at_ms

    def commit(self) -> None:
        """Hands everything on to the object, in one step. Raises if that was dropped, or
        this took too long."""
        self.refuse_if_expired()
        self.data.refuse_if_dropped()
        changes = self._changes
        if changes.cleared:
            self._below.clear()
        for key, value in changes.values.items():
            if value is None:
                self._below.delete(key)
            else:
                self._below.write(key, value)
        if changes.alarm is not UNTOUCHED and not (changes.cleared and changes.alarm is None):
            self._below.set_alarm(changes.alarm)


_current: ContextVar[Transaction | None] = ContextVar("transaction", default=None)


def current(live: Transacted) -> Data:
    """What a storage call of the running code reads and writes."""
    transaction = _current.get()
    if transaction is None or transaction.live is not live:
        return live.memory
    transaction.refuse_if_expired()
    return live.memory if transaction.ended else transaction  # what was begun in it may outlive it


def outside_transactions() -> None:
    """Has the current context be in no transaction, for a handler that begins."""
    _current.set(None)


class Turns:
    """Whose turn it is among the transactions of an object."""

    __slots__ = ("_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[asyncio.Future[None]] = []  # few, and most objects have none

    def take(self) -> asyncio.Future[None] | None:
        """None if it is the caller's turn now; else what is done when it is."""
        if not self._taken:
            self._taken = True
            return None
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return turn

    def pass_on(self) -> None:
        """The turn of whoever had it is over."""
        while self._waiting:
            turn = self._waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False

    def refuse(self, error: Exception) -> None:
        """Nobody who waits gets a turn any more."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(error)
        self._waiting.clear()


class Running:
    """A closure under way, or waiting for its turn. If that was free it has run, when this
    is made, until its first await that has to wait; the rest is done by awaiting it, or by
    itself if nobody does."""

    def __init__(self, live: Transacted, closure: Callable[[], Any]) -> None:
        if waits_for_us(live, TRANSACTION):
            raise RuntimeError(
                f"a transaction of {live.id} waits for this code, which begins another one: "
                "transactions of an object run one after the other, and do not nest"
            )
        self._transaction = Transaction(live)
        self._closure = closure
        self._context = copy_context()
        self._context.run(self._transaction.enter)
        self._result: Any = None
        self._steps: Any = None
        self._waiting_for: Any = None
        self._limit: asyncio.TimerHandle | None = None
        self._awaited = False
        self._driver: asyncio.Task[Any] | None = None
        self._turn = live.turns.take()
        if self._turn is None:
            self._begin()
        if not self._transaction.ended:
            asyncio.get_running_loop().call_soon(self._go_on_alone)

    def __await__(self) -> Generator[Any, Any, Any]:
        self._awaited = True
        return (self._driver or self._go_on()).__await__()

    def _go_on_alone(self) -> None:
        if not self._awaited:
            self._driver = self._transaction.data.beside(self._go_on())

    async def _go_on(self) -> Any:
        if self._turn is not None:
            await self._its_turn(self._turn)
            self._turn = None
            self._begin()
        if not self._transaction.ended:
            try:
                async with asyncio.timeout(TRANSACTION_SECONDS) as limit:
                    await self._rest()
            except TimeoutError:
                self._transaction.expired |= limit.expired()
                self._transaction.refuse_if_expired()
                raise
            finally:
                self._end()  # whatever ended it, a cancellation among others
        return self._result

    async def _its_turn(self, turn: asyncio.Future[None]) -> None:
        try:
            await turn
        except BaseException:
            if turn.cancelled() or turn.exception() is not None:
                self._transaction.ended = True
            else:
                self._end()  # it had just come
            raise

    def _begin(self) -> None:
        """Runs the closure as far as it goes without waiting."""
        result = self._run(self._closure)
        if not isinstance(result, Awaitable):
            self._finish(result)
            return
        self._steps = result.__await__()
        self._step(lambda: next(self._steps))
        if not self._transaction.ended:
            loop = asyncio.get_running_loop()
            self._limit = loop.call_later(TRANSACTION_SECONDS, self._expire)

    @types.coroutine
    def _rest(self) -> Iterator[Any]:
        while not self._transaction.ended:
            try:
                sent = yield self._waiting_for
            except BaseException as error:
                failure = error  # the name of an except clause does not outlive it
                self._step(partial(self._steps.throw, failure))
            else:
                self._step(partial(self._steps.send, sent))
        self._transaction.refuse_if_expired()

    def _step(self, step: Callable[[], Any]) -> None:
        """Runs on to the next await that has to wait; commits if there is none."""
        try:
            self._waiting_for = self._run(step)
        except StopIteration as end:
            self._finish(end.value)

    def _run(self, step: Callable[[], Any]) -> Any:
        try:
            return self._context.run(step)
        except StopIteration:
            raise
        except BaseException:
            self._end()
            raise

    def _finish(self, result: Any) -> None:
        try:
            self._transaction.commit()
        finally:
            self._end()
        self._result = result

    def _expire(self) -> None:
        self._transaction.expired = True
        self._end()

    def _end(self) -> None:
        if not self._transaction.ended:
            self._transaction.ended = True
            if self._limit is not None:
                self._limit.cancel()
            self._transaction.data.turns.pass_on()
