"""The commands on one reservation, as work for the writer."""

from reservation_expiry.domain.errors import HoldRefused, NotDue, NotHeld
from reservation_expiry.domain.ids import is_object
from reservation_expiry.domain.reservation import Reservation, expire, hold
from reservation_expiry.infrastructure.acting import acting
from reservation_expiry.infrastructure.errors import UndecodableEvent
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

FORGET_SERVERS_MS = 3_600_000


class HoldReservation(Work):
    """Holds it from the transaction's now. Returns the state after it."""

    def __init__(self, reservation_id: str, ttl_seconds: int) -> None:
        self.aggregate_ids = (reservation_id,)
        self._ttl_seconds = ttl_seconds
        self._by = acting.get()

    def run(self, unit: UnitOfWork) -> Reservation:
        (reservation_id,) = self.aggregate_ids
        current = unit.reservation(reservation_id)
        events = hold(current, reservation_id, self._ttl_seconds, unit.now_ms)
        return unit.append(reservation_id, events, self._by)


class ExpireReservation(Work):
    """Takes the alarm's path with an explicit clock.

    Returns the state after it (None if never held) and whether this changed it.
    """

    def __init__(self, reservation_id: str, now_ms: int) -> None:
        self.aggregate_ids = (reservation_id,)
        self._now_ms = now_ms
        self._by = acting.get()

    def run(self, unit: UnitOfWork) -> tuple[Reservation | None, bool]:
        (reservation_id,) = self.aggregate_ids
        current = unit.reservation(reservation_id)
        if current is not None and current.terms is not None and current.status == "held":
            raise HoldRefused("guarded", current, "a hold with terms ends by its own clock")
        try:
            events = expire(current, self._now_ms)
        except (NotHeld, NotDue):
            return current, False
        return unit.append(reservation_id, events, self._by), True


class NoteServer(Work):
    """Says that a process serves this database, and forgets those that have not for long."""

    keeps_house = True
    appends = False

    def __init__(self, token: str, process: str) -> None:
        self._token = token
        self._process = process

    def run(self, unit: UnitOfWork) -> None:
        unit.session.head()
        row = (self._token, self._process, unit.now_ms)
        unit.session.note_server(row, unit.now_ms - FORGET_SERVERS_MS)


class Reproject(Work):
    """Writes the alarms and read-model rows of reservations and objects anew from the log.

    Returns how many could be read from it; the rest stay as they are.
    """

    def __init__(self, ids: list[str]) -> None:
        self._ids = ids
        self.aggregate_ids = [i for i in ids if not is_object(i)]

    def run(self, unit: UnitOfWork) -> int:
        repaired = 0
        for aggregate_id in self._ids:
            try:
                unit.reproject_any(aggregate_id)
            except UndecodableEvent:
                continue
            repaired += 1
        return repaired
