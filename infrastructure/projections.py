"""The read model's row that follows from the log."""

from typing import Any

import msgspec

from reservation_expiry.domain.ids import ID_PREFIX
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.domain.terms import Terms
from reservation_expiry.infrastructure.errors import StoreDamaged
from reservation_expiry.infrastructure.stores.row_types import ReservationRow

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Terms).decode


def reservation_row(state: Reservation) -> ReservationRow:
    """The read-model row: what GET and lists answer from."""
    terms = state.terms
    if terms is None:
        return (state.name, *state[1:9], None, None)
    return (state.name, *state[1:9], terms.owner, _encode(terms).decode())


def reservation_of(row: tuple[Any, ...]) -> Reservation:
    """The state that a row was made of. Raises StoreDamaged."""
    try:
        terms = None if row[10] is None else _decode(row[10])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the terms of {row[0]} cannot be read: {error}") from error
    return Reservation(ID_PREFIX + row[0], *row[1:9], terms)
