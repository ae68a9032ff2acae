"""The commands on holds with terms and on items, as work for the writer.

A refusal is returned and not raised where it may have recorded that a hold's time was up.
The answer to a request with an Idempotency-Key is written with what the command did.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from reservation_expiry.domain.errors import HoldRefused, NotDue, NotHeld
from reservation_expiry.domain.events import Held, ReservationEvent
from reservation_expiry.domain.ids import ID_PREFIX
from reservation_expiry.domain.preconditions import Preconditions
from reservation_expiry.domain.reservation import Reservation, expire
from reservation_expiry.domain.terms import Line
from reservation_expiry.infrastructure.acting import acting
from reservation_expiry.infrastructure.stores.row_types import ItemRow
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from reservation_expiry.infrastructure.units import ANSWERS_KEPT_MS, lines_taken


class Outcome(NamedTuple):
    """What became of a command: the hold or the item as it is, whether it was changed, or
    why it was refused."""

    state: Reservation | ItemRow | None
    changed: bool
    now_ms: int
    refusal: HoldRefused | None = None
    goes_on: bool = False  # it was held before and is the same hold still


class Answered(NamedTuple):
    """`version` is that of the hold, for its ETag."""

    status: int
    version: int | None
    body: bytes


class Keyed(NamedTuple):
    """An Idempotency-Key, and the fingerprint of the request that carries it."""

    key: str
    fingerprint: str


Render = Callable[[Outcome], Answered]
Decide = Callable[[Reservation | None, int], Sequence[ReservationEvent]]
"""(the hold, now in ms) -> events. Raises HoldRefused."""


class Command(Work):
    """Decides once for each key: the same request has the same answer for a day."""

    def __init__(self, render: Render, keyed: Keyed | None) -> None:
        self._render = render
        self._keyed = keyed
        self._by = acting.get()
        self.alarm_at_ms: int | None = None  # known once it has run

    def run(self, unit: UnitOfWork) -> Answered:
        if self._keyed is None:
            return self._render(self._outcome(unit))
        key, fingerprint = self._keyed
        known = unit.units.answer(key, unit.now_ms)
        if known is not None:
            if known[1] == fingerprint:
                return Answered(*known[2:5])
            sentence = "the Idempotency-Key was used for another request"
            refusal = HoldRefused("idempotency-key-reused", None, sentence)
            return self._render(Outcome(None, False, unit.now_ms, refusal))
        status, version, body = self._render(self._outcome(unit))
        answered = Answered(int(status), version, body)
        unit.units.keep_answer((key, fingerprint, *answered, unit.now_ms))
        return answered

    def _outcome(self, unit: UnitOfWork) -> Outcome:
        raise NotImplementedError


class ActOnHold(Command):
    """Runs a decision of `domain/guarded.py`; what is overdue has ended before."""

    def __init__(
        self,
        hold_id: str,
        decide: Decide,
        wanted: Preconditions,
        render: Render,
        keyed: Keyed | None,
        item_names: Sequence[str] = (),
    ) -> None:
        super().__init__(render, keyed)
        self.aggregate_ids = (hold_id,)
        self.item_names = item_names
        self._decide = decide
        self._wanted = wanted

    def _outcome(self, unit: UnitOfWork) -> Outcome:
        (hold_id,) = self.aggregate_ids
        try:
            self._refuse_other_version(unit.reservation(hold_id))
            end_if_due(unit, hold_id)
            current = unit.reservation(hold_id)
            events = self._decide(current, unit.now_ms)
            self._make_room(unit, current, events)
        except HoldRefused as refusal:
            return Outcome(unit.reservation(hold_id), False, unit.now_ms, refusal)
        if not events:
            return Outcome(current, False, unit.now_ms)
        goes_on = current is not None and current.status == "held"
        state = unit.append(hold_id, events, self._by)
        self.alarm_at_ms = state.alarm_at_ms
        return Outcome(state, True, unit.now_ms, None, goes_on)

    def _refuse_other_version(self, current: Reservation | None) -> None:
        tag = None if current is None else str(current.version)
        if not self._wanted.matches(tag) or not self._wanted.is_new(tag):
            sentence = "the hold is not at the version that the request names"
            raise HoldRefused("version-mismatch", current, sentence)

    def _make_room(
        self, unit: UnitOfWork, current: Reservation | None, events: Sequence[ReservationEvent]
    ) -> None:
        """Raises HoldRefused if an item is short even when its overdue holds have ended. What
        the hold has itself never stands in its way."""
        wanted = next((e.terms.lines for e in events if type(e) is Held and e.terms), ())
        own = dict(lines_taken(current))
        unit.units.load(line.item for line in wanted)
        short = [line for line in wanted if _lacks(unit, line, own)]
        for line in short:
            for name in unit.units.overdue_of(line.item, unit.now_ms):
                end_if_due(unit, ID_PREFIX + name)
        short = [line for line in short if _lacks(unit, line, own)]
        if short:
            raise _not_available(unit, short, own)


class SetCapacity(Command):
    def __init__(self, item: str, capacity: int, render: Render, keyed: Keyed | None) -> None:
        super().__init__(render, keyed)
        self._item = item
        self._capacity = capacity

    def _outcome(self, unit: UnitOfWork) -> Outcome:
        _, version, capacity, _, _ = unit.units.item(self._item)
        changed = version == 0 or capacity != self._capacity
        if changed:
            unit.set_capacity(self._item, self._capacity, self._by)
        return Outcome(unit.units.item(self._item), changed, unit.now_ms)


def end_if_due(unit: UnitOfWork, hold_id: str) -> None:
    with suppress(NotHeld, NotDue):
        unit.append(hold_id, expire(unit.reservation(hold_id), unit.now_ms))


def _available(unit: UnitOfWork, line: Line, own: dict[str, int]) -> int:
    _, _, capacity, held, confirmed = unit.units.item(line.item)
    return max(0, capacity - held - confirmed + own.get(line.item, 0))


def _lacks(unit: UnitOfWork, line: Line, own: dict[str, int]) -> bool:
    return _available(unit, line, own) < line.units


def _not_available(unit: UnitOfWork, short: list[Line], own: dict[str, int]) -> HoldRefused:
    items = [
        {"item": line.item, "wanted": line.units, "free": _available(unit, line, own)}
        for line in short
    ]
    sentence = "; ".join(
        f"{i['item']} has {i['free']} free, {i['wanted']} were asked for" for i in items
    )
    return HoldRefused("not-available", None, sentence, items=items)


class ForgetAnswers(Work):
    """Deletes answers that have been kept long enough."""

    appends = False
    keeps_house = True
    on_tables = True

    def run(self, unit: UnitOfWork) -> None:
        unit.session.forget_answers(unit.now_ms - ANSWERS_KEPT_MS)
