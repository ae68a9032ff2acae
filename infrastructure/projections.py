"""The rows that follow from the log: alarms, read-model rows, objects, snapshots."""

from dataclasses import dataclass

from domain.reservation import Reservation
from infrastructure import alarm_state
from infrastructure.alarm_state import AlarmState

AlarmRow = tuple[str, float | None, bytes]
"""(id, next_run_time in Unix seconds or None when parked, job_state)"""

ReservationRow = tuple[str, int, str, int, int, int | None, int, int | None]
"""(name, version, status, created, expires and expired at in ms, count, alarm at in ms)"""


ObjectRow = tuple[str, int, int | None]
"""(id, version, what its alarm is set to in ms)"""

OwnerRow = tuple[str, int, str]
"""(token, until when its objects are its own in ms, which process it is)"""

SnapshotRow = tuple[str, int, bytes]
"""(id, version, the storage after it as JSON)"""


@dataclass(frozen=True, slots=True)
class AlarmScope:
    """Which alarms a process can run: those whose ids begin with one of `prefixes`, and
    whose object is not in the hands of an owner other than `owner`."""

    prefixes: tuple[str, ...]
    owner: str | None = None


def alarm_row(alarm_id: str, scheduled_time_ms: int) -> AlarmRow:
    """The alarm as it stands before its first attempt."""
    return (
        alarm_id,
        scheduled_time_ms / 1000,
        alarm_state.encode(AlarmState(scheduled_time_ms)),
    )


def reservation_row(state: Reservation) -> ReservationRow:
    """The read-model row: what GET and lists answer from."""
    return (state.name, *state[1:])
