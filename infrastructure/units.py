"""How many units of each item are taken, changed with the events that take and free them.

The write lock makes looking and taking one step on every node.
"""

from collections import Counter
from collections.abc import Iterable

from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.domain.terms import Line
from reservation_expiry.infrastructure.stores.row_types import AnswerRow, ItemRow, LineRow
from reservation_expiry.infrastructure.stores.sql.session import Session

DEFAULT_CAPACITY = 1
ANSWERS_KEPT_MS = 86_400_000


def lines_taken(state: Reservation | None) -> tuple[Line, ...]:
    """What a hold has of the items, in whatever state it is."""
    if state is None or state.terms is None or state.status not in ("held", "confirmed"):
        return ()
    return state.terms.lines


def line_row(state: Reservation, item: str, units: int) -> LineRow:
    """What a hold has of an item, and until when, if not for good."""
    due_at_ms = state.expires_at_ms if state.status == "held" else None
    return f"{item}/{state.name}", item, state.name, units, due_at_ms


class Units:
    """The counters, lines and answers that one transaction changes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._items: dict[str, ItemRow] = {}
        self._held: Counter[str] = Counter()
        self._confirmed: Counter[str] = Counter()
        self._capacities: set[str] = set()
        self._lines: dict[str, LineRow | None] = {}
        self._answers: dict[str, AnswerRow] = {}

    def load(self, names: Iterable[str]) -> None:
        wanted = [name for name in set(names) if name not in self._items]
        if wanted:
            self._items.update((n, (n, 0, DEFAULT_CAPACITY, 0, 0)) for n in wanted)
            self._items.update((row[0], row) for row in self._session.items(wanted))

    def item(self, name: str) -> ItemRow:
        """With what this transaction has changed."""
        self.load([name])
        _, version, capacity, held, confirmed = self._items[name]
        return name, version, capacity, held + self._held[name], confirmed + self._confirmed[name]

    def free(self, name: str) -> int:
        _, _, capacity, held, confirmed = self.item(name)
        return max(0, capacity - held - confirmed)

    def set_capacity(self, name: str, version: int, capacity: int) -> None:
        self.load([name])
        _, _, _, held, confirmed = self._items[name]
        self._items[name] = (name, version, capacity, held, confirmed)
        self._capacities.add(name)

    def move(self, before: Reservation | None, after: Reservation) -> None:
        """The hold was as before and is as after."""
        for state, sign in ((before, -1), (after, 1)):
            if state is None:
                continue
            for item, units in lines_taken(state):
                counter = self._held if state.status == "held" else self._confirmed
                counter[item] += sign * units
                key = f"{item}/{state.name}"
                self._lines[key] = line_row(state, item, units) if sign > 0 else None

    def overdue_of(self, item: str, now_ms: int) -> list[str]:
        return self._session.overdue_of(item, now_ms)

    def answer(self, key: str, now_ms: int) -> AnswerRow | None:
        """What was answered to the request with this key, within a day."""
        found = self._answers.get(key) or self._session.answer(key)
        return found if found is not None and found[5] > now_ms - ANSWERS_KEPT_MS else None

    def keep_answer(self, row: AnswerRow) -> None:
        self._answers[row[0]] = row

    def flush(self) -> None:
        changed = {n for c in (self._held, self._confirmed) for n, by in c.items() if by}
        changed |= self._capacities
        if changed:
            self.load(changed)
            self._session.put_items([self.item(name) for name in sorted(changed)])
        gone = [key for key, row in self._lines.items() if row is None]
        if gone:
            self._session.delete_lines(gone)
        put = [row for row in self._lines.values() if row is not None]
        if put:
            self._session.put_lines(put)
        if self._answers:
            self._session.put_answers(list(self._answers.values()))
