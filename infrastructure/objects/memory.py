"""What one object holds in memory: its storage and its alarm, as its code sees them at once,
and what of that is not in its log yet."""

from collections.abc import Callable, Iterator
from typing import Any

from reservation_expiry.domain.durable_object import ObjectEvent, StoredObject
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.objects.changes import Changes, Fact
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts


class Memory:
    """What storage reads and writes (the protocol `transaction.Data`), and the alarm's run.

    `on_change` is called for every change that is to come into the log, and `before_change`
    before anything of it is to be seen.
    """

    def __init__(
        self,
        stored: StoredObject,
        parked: bool,
        before_change: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self.stored = stored
        self._before_change = before_change
        self._on_change = on_change
        self._changes = Changes()
        self._logged_alarm = stored.alarm_at_ms
        self._parked = parked
        self._running: Claim | None = None
        self._touched = False  # whether the alarm was set or deleted since it began to run

    @property
    def is_changed(self) -> bool:
        """Whether something is not in the log, nor on its way there."""
        return bool(self._changes)

    def take(self, object_id: str, version: int) -> tuple[list[ObjectEvent], list[AttemptFacts]]:
        """What changed since the last time, as events behind `version`, and attempts that
        ended."""
        changes, self._changes = self._changes, Changes()
        events = list(changes.events(object_id, version, self._logged_alarm))
        self._logged_alarm = self.stored.alarm_at_ms
        return events, changes.attempts

    # Storage

    def read(self, key: str) -> bytes | None:
        return self.stored.storage.get(key)

    def keys(self, start: str | None, end: str | None, reverse: bool) -> Iterator[str]:
        storage: Any = self.stored.storage  # a SortedDict, which has no types
        found: Iterator[str] = storage.irange(start, end, (True, False), reverse)
        return found

    def write(self, key: str, value: bytes) -> None:
        self._before_change()
        self.stored.storage[key] = value
        self._changes.values[key] = value
        self._on_change()

    def delete(self, key: str) -> bool:
        self._before_change()
        if self.stored.storage.pop(key, None) is None:
            return False
        self._changes.values[key] = None
        self._on_change()
        return True

    def clear(self) -> None:
        self._before_change()
        self.stored.storage.clear()
        self._changes.clear()
        self._set_alarm(None)

    def record(self, fact: Fact) -> None:
        """Has an event in the log, with whatever else is written now."""
        self._before_change()
        self._changes.facts.append(fact)
        self._on_change()

    def keep_attempt(self, attempt: AttemptFacts) -> None:
        """Has it kept how an attempt ended, with whatever else is written now."""
        self._before_change()
        self._changes.attempts.append(attempt)
        self._on_change()

    # The alarm

    def get_alarm(self) -> int | None:
        if self._parked or (self._running is not None and not self._touched):
            return None
        return self.stored.alarm_at_ms

    def set_alarm(self, at_ms: int | None) -> None:
        self._before_change()
        self._changes.alarm = at_ms
        self._set_alarm(at_ms)

    def _set_alarm(self, at_ms: int | None) -> None:
        self.stored.alarm_at_ms = at_ms
        self._touched = True
        self._parked = False
        self._on_change()

    # Its run (`alarms.py` decides; this keeps the slot)

    def begin_alarm(self, claim: Claim) -> bool:
        """Whether this alarm is still what the slot is set to, and begins to run now."""
        if self.stored.alarm_at_ms != claim.slot.scheduled_time:
            return False
        self._running, self._touched, self._parked = claim, False, False
        return True

    def end_alarm(self, *, well: bool) -> bool:
        """Ends the run. Whether the slot is as it was, neither set nor deleted since."""
        self._running = None
        untouched = not self._touched
        if well and untouched:
            self._before_change()
            self._changes.handled = self.stored.alarm_at_ms
            self.stored.alarm_at_ms = None
            self._on_change()
        return untouched

    def alarm_was_parked(self) -> None:
        """The clock gave it up, for having begun too often, before it came to us."""
        self._parked = self._running is None

    def park_alarm(self) -> None:
        self._parked = not self._touched

    def cut_off(self) -> int:
        """With how many others the alarm that runs was under way when their process ended."""
        return 0 if self._running is None else self._running.cut_off
