"""`storage.transaction()`: all of a closure's writes, or none.

What the closure writes goes into an overlay that only it sees, and on to the object when
it ends. Which overlay a storage call belongs to follows the flow of the code (a context
variable), so the closure may use its argument or `ctx.storage` alike.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Protocol

from infrastructure.objects.changes import UNTOUCHED, Changes

if TYPE_CHECKING:
    from infrastructure.objects.live_object import LiveObject


class Data(Protocol):
    """What storage reads and writes: the object itself, or a transaction on it."""

    def read(self, key: str) -> bytes | None: ...
    def keys(self, start: str | None, end: str | None, reverse: bool) -> Iterator[str]: ...
    def write(self, key: str, value: bytes) -> None: ...
    def delete(self, key: str) -> bool: ...
    def clear(self) -> None: ...
    def get_alarm(self) -> int | None: ...
    def set_alarm(self, at_ms: int | None) -> None: ...


class Transaction:
    """The overlay of one transaction."""

    def __init__(self, live: "LiveObject") -> None:
        self.live = live
        self.ended = False
        self._changes = Changes()

    def read(self, key: str) -> bytes | None:
        if key in self._changes.values:
            return self._changes.values[key]
        return None if self._changes.cleared else self.live.read(key)

    def keys(self, start: str | None, end: str | None, reverse: bool) -> Iterator[str]:
        below = () if self._changes.cleared else self.live.keys(start, end, False)
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
            return self.live.get_alarm()
        return self._changes.alarm

    def set_alarm(self, at_ms: int | None) -> None:
        self._changes.alarm = at_ms

    def commit(self) -> None:
        """Hands everything on to the object, in one step. Raises if that was dropped."""
        self.live.refuse_if_dropped()
        changes = self._changes
        if changes.cleared:
            self.live.clear()
        for key, value in changes.values.items():
            if value is None:
                self.live.delete(key)
            else:
                self.live.write(key, value)
        if changes.alarm is not UNTOUCHED and not (changes.cleared and changes.alarm is None):
            self.live.set_alarm(changes.alarm)


_current: ContextVar[Transaction | None] = ContextVar("transaction", default=None)


def current(live: "LiveObject") -> Data:
    """What a storage call of the running code reads and writes."""
    transaction = _current.get()
    if transaction is None or transaction.live is not live or transaction.ended:
        return live  # what was begun within a transaction may outlive it
    return transaction


def outside() -> Any:
    """A context in which no transaction is running, for a handler that begins."""
    context = copy_context()
    context.run(_current.set, None)
    return context


class Running:
    """A closure under way. It has run, when this is made, until its first await that has
    to wait; the rest is done by awaiting it, or by itself if nobody does."""

    def __init__(self, transaction: Transaction, closure: Callable[[], Any]) -> None:
        self._transaction = transaction
        self._context = copy_context()
        self._context.run(_current.set, transaction)
        self._result: Any = None
        self._steps: Any = None
        self._awaited = False
        result = self._step(closure)
        if isinstance(result, Awaitable):
            self._steps = result.__await__()
            self._waiting_for = self._step(lambda: next(self._steps))
            if self._steps is not None:
                asyncio.get_running_loop().call_soon(self._go_on_alone)
        else:
            self._finish(result)

    def _go_on_alone(self) -> None:
        if not self._awaited:
            self._transaction.live.run_beside(self)

    def __await__(self) -> Iterator[Any]:
        self._awaited = True
        while self._steps is not None:
            try:
                sent = yield self._waiting_for
            except BaseException as error:
                failure = error  # the name of an except clause does not outlive it
                self._waiting_for = self._step(lambda e=failure: self._steps.throw(e))
            else:
                self._waiting_for = self._step(lambda s=sent: self._steps.send(s))
        return self._result

    def _step(self, step: Callable[[], Any]) -> Any:
        """Runs on to the next await that has to wait; commits if there is none."""
        try:
            return self._context.run(step)
        except StopIteration as end:
            self._steps = None
            self._finish(end.value)
        except BaseException:
            self._transaction.ended = True
            raise
        return None

    def _finish(self, result: Any) -> None:
        self._transaction.ended = True
        self._transaction.commit()
        self._result = result
