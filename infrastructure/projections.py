"""The read model's row that follows from the log."""

import msgspec

from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.stores.row_types import ReservationRow

_encode = msgspec.json.Encoder().encode


def reservation_row(state: Reservation) -> ReservationRow:
    """The read-model row: what GET and lists answer from."""
    terms = state.terms
    if terms is None:
        return (state.name, *state[1:9], None, None)
    return (state.name, *state[1:9], terms.owner, _encode(terms).decode())
