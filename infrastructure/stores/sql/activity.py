"""What happened when, and how things stood at a moment of the log: for people who look.

Counting takes time in proportion to what is counted. Each method says what that is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from reservation_expiry.domain.ids import ID_PREFIX
from reservation_expiry.infrastructure.instants import ms_of_seconds
from reservation_expiry.infrastructure.stores.row_types import AlarmScope, ObjectRow, ReservationRow
from reservation_expiry.infrastructure.stores.sql.alarm_scope import in_scope
from reservation_expiry.infrastructure.stores.sql.prefixes import begins_with
from reservation_expiry.infrastructure.stores.sql.rows import Reader
from reservation_expiry.infrastructure.stores.sql.tables import OBJECTS, RESERVATIONS
from reservation_expiry.infrastructure.stores.sql.typed import checked

MINUTE_MS = 60_000
# What a hold is after its newest event of these.
STATUS_AFTER: Mapping[str, str] = {
    "reservation.Held": "held",
    "reservation.Expired": "expired",
    "reservation.Confirmed": "confirmed",
    "reservation.Released": "released",
    "reservation.Cancelled": "cancelled",
}
LATENESS_BELOW_MS = (10, 25, 50, 100, 250, 500, 1_000, 5_000)
"""Bounds of the buckets of lateness; the last one has no bound."""

_TIME = "SELECT recorded_at_ms FROM events WHERE position >= ? ORDER BY position LIMIT 1"
_BY_MINUTE = f"""
SELECT recorded_at_ms / {MINUTE_MS} AS minute, topic, count(*) FROM events
WHERE position > ? GROUP BY minute, topic"""
_TOPICS = ", ".join(f"'{topic}'" for topic in STATUS_AFTER)
_STANDING = f"""
SELECT topic, count(*) FROM events
WHERE position <= ? AND topic IN ({_TOPICS}) AND NOT EXISTS (
    SELECT 1 FROM events AS later WHERE later.originator_id = events.originator_id
    AND later.originator_version > events.originator_version
    AND later.position <= ? AND later.topic IN ({_TOPICS}))
GROUP BY topic"""
_OF_RESERVATIONS = AlarmScope((ID_PREFIX,))
_STANDING_NOW = "SELECT status, count(*) FROM reservations GROUP BY status"
_BUCKETS = ", ".join(
    f"sum(CASE WHEN lateness_ms < {bound} THEN 1 ELSE 0 END)" for bound in LATENESS_BELOW_MS
)
_LATENESS = f"SELECT {_BUCKETS}, count(*) FROM attempts WHERE id >= ? AND outcome = 'ok'"
_CENSUS = """
SELECT (SELECT count(*) FROM reservations WHERE status = 'held'), count(*), min(next_run_time)
FROM alarms WHERE next_run_time <= ?"""


@dataclass(frozen=True)
class Census:
    """What only counting tells, and where the log ends. Ages are milliseconds, 0 if there is
    nothing of that age; `backlog_ms` is that of the alarms in the scope that was asked for."""

    open_holds: int
    overdue: int
    oldest_overdue_ms: int
    parked: int
    head: int
    backlog_ms: int


class Activity:
    """Raises, from every method, what `Queries` raises."""

    def __init__(self, reader: Reader) -> None:
        self._all = reader.all

    def recorded_at(self, position: int) -> int | None:
        """When the first event from a position on was recorded, in ms. One row."""
        rows = self._all(_TIME, (position,))
        return rows[0][0] if rows else None

    def position_at(self, at_ms: int, head: int) -> int:
        """The position of the last event recorded before a time; 0 if none was. Some twenty
        rows: times rise with positions, but for a clock that was set back."""
        low, high = 0, head
        while low < high:
            middle = (low + high + 1) // 2
            recorded_ms = self.recorded_at(middle)
            if recorded_ms is not None and recorded_ms < at_ms:
                low = middle
            else:
                high = middle - 1
        return low

    def by_minute(self, after: int) -> list[tuple[int, str, int]]:
        """(minute since 1970, topic, how many) of the events behind a position: all of them."""
        return self._all(_BY_MINUTE, (after,))

    def standing_now(self) -> dict[str, int]:
        """The same as things stand, from the read model: looks at every reservation."""
        found = dict(self._all(_STANDING_NOW))
        return {status: found.get(status, 0) for status in STATUS_AFTER.values()}

    def standing_at(self, position: int) -> dict[str, int]:
        """How many reservations were held, expired, ... after the event at a position. Looks
        at every event until then."""
        found = dict(self._all(_STANDING, (position, position)))
        return {status: found.get(topic, 0) for topic, status in STATUS_AFTER.items()}

    def lateness(self, since_ms: int) -> list[int]:
        """How many alarms that were settled well since then, by bucket: of those kept."""
        (*below, count) = self._all(_LATENESS, (f"{since_ms:014d}",))[0]
        edges = [0, *(found or 0 for found in below), count]
        return [after - before for before, after in pairwise(edges)]

    def census(self, backlog_ms: int, parked: int, head: int, now_ms: int) -> Census:
        """Counts every hold and every due alarm; the rest is known. An alarm that somebody
        works on is not overdue."""
        held, overdue, oldest = self._all(_CENSUS, (now_ms / 1000,))[0]
        oldest_ms = 0 if oldest is None else now_ms - ms_of_seconds(oldest)
        return Census(held, overdue, oldest_ms, parked, head, backlog_ms)

    def next_alarm_at(self) -> int | None:
        """When an alarm is looked at next, in ms. One row."""
        soonest = self._all("SELECT min(next_run_time) FROM alarms")[0][0]
        return None if soonest is None else ms_of_seconds(soonest)

    def soonest(self, limit: int, offset: int) -> list[ReservationRow]:
        """Reservations in the order in which they will end."""
        where, values = in_scope(_OF_RESERVATIONS, 0)
        select = (
            f"SELECT {RESERVATIONS.selected} FROM alarms"
            f" JOIN reservations ON reservations.name = substr(alarms.id, {len(ID_PREFIX) + 1})"
            f" WHERE next_run_time IS NOT NULL AND {where} ORDER BY next_run_time, id"
        )
        found = self._all(f"{select} LIMIT ? OFFSET ?", (*values, limit, offset))
        return checked("reservations", found, RESERVATIONS.python_types)

    def objects(self, prefix: str, after: str, limit: int) -> list[ObjectRow]:
        """Objects whose ids begin so, in order of their ids, those after the id `after`."""
        begins, bounds = begins_with("id", prefix)
        values: Sequence[Any] = (*bounds, after, limit)
        select = f"SELECT {OBJECTS.selected} FROM objects WHERE {begins} AND id > ?"
        return self._all(f"{select} ORDER BY id LIMIT ?", values)
