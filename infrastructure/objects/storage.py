"""`ctx.storage`: what an object keeps, and its alarm.

Every call acts when it is called, on the object in memory; what it returns may be
awaited or not, and awaiting it never lets other code in between. Names are those of
Cloudflare's API, and the same in snake_case.
"""

import inspect
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from reservation_expiry.domain.alarm import looks_like_seconds
from reservation_expiry.domain.prefixes import prefix_range
from reservation_expiry.infrastructure.objects import values
from reservation_expiry.infrastructure.objects.alarm_time import alarm_time_ms
from reservation_expiry.infrastructure.objects.transaction import Data, Running, Transacted, current

MAX_BATCH_KEYS = 128  # of one get, put or delete of several

logger = logging.getLogger(__name__)


class Done:
    """A result that is there already; `await` gives it without waiting."""

    __slots__ = ("_value",)

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, Any]:
        return self._value
        yield  # type: ignore[unreachable]  # noqa: V201  # never reached, but it makes this a generator


class Kept(Transacted, Protocol):
    """The object whose storage it is."""

    def now_ms(self) -> int: ...
    def refuse_without_handler(self) -> None: ...
    def flush(self) -> None: ...
    async def durable(self) -> None: ...


class _Synced:
    __slots__ = ("_live",)

    def __init__(self, live: Kept) -> None:
        self._live = live

    def __await__(self) -> Generator[Any, None, None]:
        return self._live.durable().__await__()


class Storage:
    """Values are JSON: what cannot be kept, or a key that is none, is a TypeError."""

    def __init__(self, live: Kept) -> None:
        self._live = live

    def get(self, key: str | Sequence[str]) -> Done:
        """The value, None if there is none; for several keys a dict of those there are."""
        data = self._data()
        if isinstance(key, str):
            value = data.read(values.check_key(key))
            return Done(None if value is None else values.decode(value))
        found = {k: data.read(k) for k in _several(key)}
        return Done({k: values.decode(v) for k, v in found.items() if v is not None})

    def put(self, key: str | Mapping[str, Any], value: Any = None) -> Done:
        """Writes one value, or all of a dict."""
        items = key if isinstance(key, Mapping) else {key: value}
        _several(items)
        encoded = {k: values.encode(v, f"the value of {k!r}") for k, v in items.items()}
        data = self._data()
        for k, v in encoded.items():
            data.write(k, v)
        return Done()

    def delete(self, key: str | Sequence[str]) -> Done:
        """Whether it was there; for several keys, how many were."""
        data = self._data()
        if isinstance(key, str):
            return Done(data.delete(values.check_key(key)))
        return Done(sum(data.delete(k) for k in _several(key)))

    def list(
        self,
        prefix: str | None = None,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Done:
        """A dict in order of the keys: those with the prefix, from `start` up to and
        without `end`, at most `limit` of them; from the other end if `reverse`."""
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise TypeError(f"a limit is a whole number, not {limit!r}")
        if limit is not None and limit < 1:
            raise TypeError(f"a limit is at least 1, not {limit}")
        for name, text in (("prefix", prefix), ("start", start), ("end", end)):
            if not isinstance(text, str | None):
                raise TypeError(f"{name} is text, not {text!r}")
        if prefix:
            lower, upper = prefix_range(prefix)
            start = lower if start is None else max(start, lower)
            end = min((bound for bound in (end, upper) if bound is not None), default=None)
        data = self._data()
        found: dict[str, Any] = {}
        for key in data.keys(start, end, reverse):
            value = data.read(key)
            if value is not None:
                found[key] = values.decode(value)
            if len(found) == limit:
                break
        return Done(found)

    def deleteAll(self) -> Done:
        """Deletes every key, and the alarm."""
        self._data().clear()
        return Done()

    def getAlarm(self) -> Done:
        """When the alarm is set to, in Unix milliseconds; None if none is.

        While the alarm's handler runs it is None, unless it has been set since.
        """
        return Done(self._data().get_alarm())

    def setAlarm(self, time: Any) -> Done:
        """Sets the one alarm there is, replacing any earlier one (see `alarm_time.py`)."""
        self._live.refuse_without_handler()
        data, at_ms = self._data(), alarm_time_ms(time, self._live.now_ms())
        if not isinstance(time, datetime) and looks_like_seconds(time):
            logger.warning("%s set its alarm to %s ms: were seconds meant?", self._live.id, time)
        data.set_alarm(at_ms)
        return Done()

    def deleteAlarm(self) -> Done:
        """Takes the alarm back; one that runs is not retried if it fails."""
        self._data().set_alarm(None)
        return Done()

    def transaction(self, closure: Callable[..., Any]) -> Any:
        """Runs `closure`, given this storage if it takes an argument: all that it writes is
        kept, or nothing if it raises. Returns what it returns.

        Transactions of an object run one after the other: this one begins when those that
        were asked for before have ended, at once if there are none. So it must be awaited
        by whoever needs its result, or its effect. Raises TransactionTimeout if it takes
        longer than TRANSACTION_SECONDS, and RuntimeError within another one. What another
        handler puts without a transaction is not held up, and may be written over.
        """
        self._live.refuse_if_dropped()
        return Running(self._live, (lambda: closure(self)) if _takes_argument(closure) else closure)

    def sync(self) -> Any:
        """Awaited, waits until all that was written before is on disk."""
        self._live.flush()
        return _Synced(self._live)

    delete_all = deleteAll
    get_alarm = getAlarm
    set_alarm = setAlarm
    delete_alarm = deleteAlarm

    def _data(self) -> Data:
        self._live.refuse_if_dropped()
        return current(self._live)


def _several(keys: Any) -> Any:
    if not isinstance(keys, Mapping | list | tuple):
        raise TypeError(f"keys are text, or a list of texts, not {type(keys).__name__}")
    if len(keys) > MAX_BATCH_KEYS:
        raise TypeError(f"at most {MAX_BATCH_KEYS} keys at once, not {len(keys)}")
    for key in keys:
        values.check_key(key)
    return keys


def _takes_argument(closure: Callable[..., Any]) -> bool:
    try:
        return bool(inspect.signature(closure).parameters)
    except (TypeError, ValueError):
        return True
