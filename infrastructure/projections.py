"""The rows that follow from the log: what is projected from a state."""

from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure import alarm_state
from reservation_expiry.infrastructure.alarm_state import AlarmState
from reservation_expiry.infrastructure.stores.row_types import AlarmRow, ReservationRow


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
