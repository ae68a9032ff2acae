"""The rows that follow from a reservation's state: its alarm and its read-model row."""

from domain.reservation import Reservation
from infrastructure import alarm_state
from infrastructure.alarm_state import AlarmState

AlarmRow = tuple[str, float | None, bytes]
"""(id, next_run_time in Unix seconds or None when parked, job_state)"""

ReservationRow = tuple[str, int, str, int, int, int | None, int, int | None]
"""(name, version, status, created, expires and expired at in ms, count, alarm at in ms)"""


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
