"""The durable object: private storage and one alarm slot under a name, as events.

People's own classes run on this. What they do to their storage between two flushes is
one event; what they do to their alarm is another. An object's id in the log is
`object/<class>/<name>`.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Literal, assert_never, final


@final
@dataclass(frozen=True, slots=True)
class StorageWritten:
    """Keys were written and deleted, after everything was deleted first if `cleared`.

    `puts` has the JSON text of each value.
    """

    originator_id: str
    originator_version: int
    puts: Mapping[str, bytes]
    deletes: tuple[str, ...]
    cleared: bool


@final
@dataclass(frozen=True, slots=True)
class AlarmSet:
    """The object's one alarm was set to this instant, replacing any earlier one."""

    originator_id: str
    originator_version: int
    scheduled_time_ms: int


@final
@dataclass(frozen=True, slots=True)
class AlarmDeleted:
    """The object took its alarm back before it had run to a good end."""

    originator_id: str
    originator_version: int


@final
@dataclass(frozen=True, slots=True)
class AlarmHandled:
    """The handler of the alarm that was set to this instant ended well."""

    originator_id: str
    originator_version: int
    scheduled_time_ms: int


RunOutcome = Literal["ok", "failed", "interrupted", "gave-up"]


@final
@dataclass(frozen=True, slots=True)
class RunEnded:
    """An attempt at running a scheduled event ended. It changes nothing by itself: what
    follows from it is written to the storage beside it.

    `attempt` counts from 1 for each planned time. "interrupted" is what ended with its
    process, "gave-up" the last attempt at a planned time, which failed like those before it.
    """

    originator_id: str
    originator_version: int
    event_id: str
    revision: int
    planned_at_ms: int
    began_at_ms: int
    ended_at_ms: int
    attempt: int
    outcome: RunOutcome


@final
@dataclass(frozen=True, slots=True)
class EventCancelled:
    """A scheduled event was taken out of its schedule, or another put in its stead.

    `planned_at_ms` is when it was to run next, None if it was not to.
    """

    originator_id: str
    originator_version: int
    event_id: str
    revision: int
    planned_at_ms: int | None
    reason: Literal["cancelled", "replaced"]


AlarmEvent = AlarmSet | AlarmDeleted | AlarmHandled
ObjectEvent = StorageWritten | AlarmEvent | RunEnded | EventCancelled


def alarm_after(event: ObjectEvent, alarm_at_ms: int | None) -> int | None:
    """What an object's alarm is set to after an event, if it was set to `alarm_at_ms`."""
    if type(event) is AlarmSet:
        return event.scheduled_time_ms
    if type(event) is AlarmDeleted or type(event) is AlarmHandled:
        return None
    if type(event) is StorageWritten or type(event) is RunEnded or type(event) is EventCancelled:
        return alarm_at_ms  # they say nothing of the alarm
    assert_never(event)


@dataclass(slots=True)
class StoredObject:
    """What the log says of an object after `version` events.

    `storage` has the JSON text of each value. `alarm_at_ms` is the time its alarm was set
    to, None if none is; it stays while the handler runs and between retries.
    """

    version: int = 0
    alarm_at_ms: int | None = None
    storage: MutableMapping[str, bytes] = field(default_factory=dict)

    def apply(self, event: ObjectEvent) -> None:
        """Total: every event applies to every state."""
        self.version = event.originator_version
        if type(event) is StorageWritten:
            if event.cleared:
                self.storage.clear()
            for key in event.deletes:
                self.storage.pop(key, None)
            self.storage.update(event.puts)
        else:
            self.alarm_at_ms = alarm_after(event, self.alarm_at_ms)

    def broken_rule(self, event: ObjectEvent) -> str | None:
        """What `event`, coming next in a log, says that was never decided, if anything."""
        if type(event) is AlarmDeleted and self.alarm_at_ms is None:
            return "AlarmDeleted where no alarm is set"
        if type(event) is AlarmHandled and event.scheduled_time_ms != self.alarm_at_ms:
            return f"AlarmHandled for {event.scheduled_time_ms}, not {self.alarm_at_ms}"
        return None
