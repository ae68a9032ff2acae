"""The log against its projections: what the rows should be, and what they are.

Verifying reports the differences; rebuilding writes them. Both walk the names in
order, a chunk at a time, so memory stays flat however long the log is.
"""

from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.domain.ids import ID_PREFIX, reservation_name
from reservation_expiry.domain.reservation import Reservation, apply, broken_rule
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.alarm_row import row_set_to
from reservation_expiry.infrastructure.errors import UndecodableEvent
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.projections import reservation_row
from reservation_expiry.infrastructure.stores.row_types import (
    AlarmRow,
    Chunk,
    LogRow,
    ReservationRow,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it must be.

    `position` is the event that is wrong, or the last one of the aggregate whose rows are.
    """

    originator_id: str
    position: int | None
    problem: str


@dataclass(slots=True)
class Found:
    """What comparing a chunk brought: the differences, and the rows that would mend them.

    `put_rows` and `delete_rows` are of the table that the chunk's aggregates have a row in:
    reservations, by name, or objects, by id.
    """

    aggregates: int = 0
    events: int = 0
    differences: list[Difference] = field(default_factory=list)
    put_rows: list[tuple[Any, ...]] = field(default_factory=list)
    delete_rows: list[str] = field(default_factory=list)
    put_alarms: list[AlarmRow] = field(default_factory=list)
    delete_alarms: list[str] = field(default_factory=list)
    delete_snapshots: list[str] = field(default_factory=list)

    @property
    def rows_to_mend(self) -> int:
        mends: tuple[Sized, ...] = (
            self.put_rows,
            self.delete_rows,
            self.put_alarms,
            self.delete_alarms,
            self.delete_snapshots,
        )
        return sum(map(len, mends))

    def note(self, originator_id: str, position: int | None, problem: str) -> None:
        self.differences.append(Difference(originator_id, position, problem))


def compare(chunk: Chunk, mapper: EventMapper) -> Found:
    """Replays the chunk's events and holds the projected rows against the result.

    Rows of an aggregate that cannot be replayed are left as they are.
    """
    found = Found()
    for originator_id, history in groupby(chunk.events, key=itemgetter(0)):
        found.aggregates += 1
        row = chunk.reservations.pop(reservation_name(originator_id), None)
        alarm = chunk.alarms.pop(originator_id, None)
        state, position = _replay(history, mapper, found)
        if state is not None:
            _compare_row(found, state, position, row)
            compare_alarm(
                found,
                originator_id,
                position,
                state.alarm_at_ms,
                alarm,
                if_missing="is held, and has no alarm",
                if_left_over="has an alarm, and no open hold",
            )
    for name in chunk.reservations:
        found.delete_rows.append(name)
        found.note(ID_PREFIX + name, None, "the read model has it, the log does not")
    for alarm_id in chunk.alarms:
        found.delete_alarms.append(alarm_id)
        found.note(alarm_id, None, "an alarm of nothing in the log")
    return found


def _replay(
    history: Iterator[LogRow], mapper: EventMapper, found: Found
) -> tuple[Reservation | None, int]:
    """The state and the position of the last event, noting what is wrong on the way.

    The state is None if an event cannot be decoded.
    """
    state, expected, position, decode = None, 0, 0, mapper.decode
    for originator_id, version, topic, data, position in history:
        found.events += 1
        expected += 1
        if version != expected:
            problem = f"has version {version} where {expected} should be"
            found.note(originator_id, position, problem)
            expected = version
        try:
            event = decode(originator_id, version, topic, data)
        except UndecodableEvent as error:
            found.note(originator_id, position, str(error))
            found.events += sum(1 for _ in history)
            return None, position
        broken = broken_rule(state, event)
        if broken is not None:
            found.note(originator_id, position, broken)
        state = apply(state, event)
    return state, position


def _compare_row(
    found: Found, state: Reservation, position: int, row: ReservationRow | None
) -> None:
    right = reservation_row(state)
    if row != right:
        problem = "is missing from the read model" if row is None else _what_differs(row, right)
        found.put_rows.append(right)
        found.note(state.id, position, problem)


def compare_alarm(
    found: Found,
    originator_id: str,
    position: int,
    alarm_at_ms: int | None,
    row: AlarmRow | None,
    *,
    if_missing: str,
    if_left_over: str,
) -> None:
    """Holds an alarm row against the time that the log says it is for, None for no alarm."""
    if alarm_at_ms is None:
        if row is not None:
            found.delete_alarms.append(originator_id)
            found.note(originator_id, position, if_left_over)
        return
    problem = if_missing if row is None else _alarm_problem(row, alarm_at_ms)
    if problem is not None:
        found.put_alarms.append(row_set_to(originator_id, alarm_at_ms))
        found.note(originator_id, position, problem)


def _alarm_problem(row: AlarmRow, scheduled_time_ms: int) -> str | None:
    """What is wrong with an alarm row, if anything, where the log says it is for that time."""
    try:
        state = alarm_row.decode(row[2])
    except alarm_row.UnreadableAlarm as error:
        return f"has an alarm that cannot be read: {error}"
    if state.scheduled_time != scheduled_time_ms:
        return f"has its alarm at {state.scheduled_time}, the log says {scheduled_time_ms}"
    looks_at, untouched = row[1], state == AlarmSlot(scheduled_time_ms)
    if looks_at is None:
        return None  # parked
    if not isinstance(looks_at, float) or (untouched and looks_at != scheduled_time_ms / 1000):
        return f"has an alarm that would be looked at {looks_at}, not {scheduled_time_ms / 1000}"
    return None


def _what_differs(row: ReservationRow, right: ReservationRow) -> str:
    names = (
        "name",
        "version",
        "status",
        "created_at_ms",
        "expires_at_ms",
        "expired_at_ms",
        "expiration_count",
        "alarm_at_ms",
        "ended_at_ms",
        "owner",
        "terms",
    )
    differing = [
        f"{name} is {got!r}, the log says {want!r}"
        for name, got, want in zip(names, row, right, strict=True)
        if got != want
    ]
    return "in the read model " + ", ".join(differing)
