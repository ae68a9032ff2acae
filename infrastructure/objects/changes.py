"""What has been done to an object and is not in its log yet."""

from collections.abc import Callable, Iterator
from enum import Enum

from reservation_expiry.domain.durable_object import (
    AlarmDeleted,
    AlarmHandled,
    AlarmSet,
    ObjectEvent,
    StorageWritten,
)
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts


class Untouched(Enum):
    """That an alarm was neither set nor deleted."""

    UNTOUCHED = "untouched"


UNTOUCHED = Untouched.UNTOUCHED
Fact = Callable[[str, int], ObjectEvent]
"""Makes an event of the object's id and version."""

EVENT_BYTES = 8 * 1024 * 1024  # of values in one event; more are written as several


class Changes:
    """Puts and deletes by key, whether all was deleted first, and what became of the alarm.

    `facts` make events that are for the log alone; `attempts` are kept beside it; `alarm` is
    UNTOUCHED, None if it was deleted, or the time it was set to; `handled` is the time of the
    alarm whose handler ended well.
    """

    __slots__ = ("alarm", "attempts", "cleared", "facts", "handled", "values")

    def __init__(self) -> None:
        self.values: dict[str, bytes | None] = {}
        self.cleared = False
        self.facts: list[Fact] = []
        self.attempts: list[AttemptFacts] = []
        self.alarm: int | Untouched | None = UNTOUCHED
        self.handled: int | None = None

    def __bool__(self) -> bool:
        return bool(
            self.values
            or self.cleared
            or self.facts
            or self.attempts
            or self.alarm is not UNTOUCHED
            or self.handled is not None
        )

    def clear(self) -> None:
        """Everything is deleted, the alarm too."""
        self.values.clear()
        self.cleared = True
        self.alarm = None

    def events(
        self, object_id: str, version: int, alarm_at_ms: int | None
    ) -> Iterator[ObjectEvent]:
        """As events behind `version`; `alarm_at_ms` is what the alarm was set to by then."""
        if self.values or self.cleared:
            deletes = tuple(key for key, value in self.values.items() if value is None)
            cleared = self.cleared
            for puts in self._puts():
                version += 1
                yield StorageWritten(object_id, version, puts, deletes, cleared)
                deletes, cleared = (), False
        for fact in self.facts:
            version += 1
            yield fact(object_id, version)
        if self.handled is not None:
            version += 1
            alarm_at_ms = None
            yield AlarmHandled(object_id, version, self.handled)
        if isinstance(self.alarm, int):
            yield AlarmSet(object_id, version + 1, self.alarm)
        elif self.alarm is None and alarm_at_ms is not None:
            yield AlarmDeleted(object_id, version + 1)

    def _puts(self) -> Iterator[dict[str, bytes]]:
        """What was put, in parts that an event, and a line of an export, can hold."""
        puts: dict[str, bytes] = {}
        size = 0
        for key, value in self.values.items():
            if value is None:
                continue
            if puts and size + len(value) > EVENT_BYTES:
                yield puts
                puts, size = {}, 0
            puts[key] = value
            size += len(value)
        yield puts
