"""The read model's row that follows from the log."""

from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.stores.row_types import ReservationRow


def reservation_row(state: Reservation) -> ReservationRow:
    """The read-model row: what GET and lists answer from."""
    return (state.name, *state[1:])
