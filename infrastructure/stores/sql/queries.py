"""What readers ask: the read model, the log, the alarms. None of it takes a lock."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from reservation_expiry.domain.ids import ID_PREFIX, OBJECT_PREFIX
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.errors import StoreDamaged
from reservation_expiry.infrastructure.instants import ms_of_seconds
from reservation_expiry.infrastructure.stores.row_types import (
    AlarmRow,
    AlarmScope,
    ItemRow,
    TokenRow,
)
from reservation_expiry.infrastructure.stores.sql.alarm_scope import in_scope
from reservation_expiry.infrastructure.stores.sql.head import Head, read_head, read_life
from reservation_expiry.infrastructure.stores.sql.holds_page import HoldsWanted, statement_of
from reservation_expiry.infrastructure.stores.sql.item_rows import reservation_of
from reservation_expiry.infrastructure.stores.sql.pages import read_page
from reservation_expiry.infrastructure.stores.sql.prefixes import begins_with
from reservation_expiry.infrastructure.stores.sql.rows import Reader
from reservation_expiry.infrastructure.stores.sql.tables import (
    ALARMS,
    ITEMS,
    RESERVATIONS,
    TOKENS,
)
from reservation_expiry.infrastructure.stores.sql.typed import ID, checked

_RESERVATION = f"SELECT {RESERVATIONS.selected} FROM reservations"
_PLAIN = RESERVATIONS.names[:8]
_PLAIN_TYPES = RESERVATIONS.python_types[:8]
_WITHOUT_TERMS = f"SELECT {', '.join(_PLAIN)} FROM reservations WHERE name = ?"
HISTORY_ROWS = 1_000  # of a page, where all is asked for


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A row of the log."""

    position: int
    originator_id: str
    originator_version: int
    topic: str
    state: bytes
    recorded_at_ms: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class Overview:
    """What a start or a health check wants to know. Times are Unix milliseconds."""

    open_holds: int
    parked: int
    next_alarm_at_ms: int | None


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


class Queries:
    """Each method is one statement on a lent connection and sees the newest commit.

    Raises, from every method: StoreBusy, StoreUnavailable, StoreStopped, ForkedProcess.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._all = reader.all

    def reservation(self, name: str) -> Reservation | None:
        rows = _reservations(self._all(_RESERVATION + " WHERE name = ?", (name,)))
        return rows[0] if rows else None

    def without_terms(self, name: str) -> Reservation | None:
        """The same but for its terms and when it was ended by its holder: all that the
        contract shows, read as fast as if there were no more."""
        rows = self._all(_WITHOUT_TERMS, (name,))
        if not rows:
            return None
        (row,) = checked("reservations", rows, _PLAIN_TYPES)
        return Reservation(ID_PREFIX + row[0], *row[1:])

    def reservations(
        self,
        *,
        status: str | None = None,
        prefix: str = "",
        due_before_ms: int | None = None,
        after: str = "",
        limit: int,
    ) -> list[Reservation]:
        """Up to `limit` reservations, by name, those after the name `after`."""
        wheres = ["name > ?"]
        values: list[Any] = [after]
        if prefix:
            begins, bounds = begins_with("name", prefix)
            wheres.append(begins)
            values += bounds
        if status is not None:
            wheres.append("status = ?")
            values.append(status)
        if due_before_ms is not None:
            wheres.append("status = 'held' AND expires_at_ms < ?")
            values.append(due_before_ms)
        rows = self._all(
            f"{_RESERVATION} WHERE {' AND '.join(wheres)} ORDER BY name LIMIT ?", (*values, limit)
        )
        return _reservations(rows)

    def items(self, after: str = "", limit: int = HISTORY_ROWS) -> list[ItemRow]:
        """Up to `limit` items, by name, those after the name `after`."""
        rows = self._all(
            f"SELECT {ITEMS.selected} FROM items WHERE name > ? ORDER BY name LIMIT ?",
            (after, limit),
        )
        return checked("items", rows, ITEMS.python_types)

    def item(self, name: str) -> ItemRow | None:
        found: ItemRow | None = self._one(
            f"SELECT {ITEMS.selected} FROM items WHERE name = ?", (name,)
        )
        return found

    def holds(self, wanted: HoldsWanted, now_ms: int, limit: int) -> list[Reservation]:
        """Up to `limit` holds with terms, in the order that is wanted."""
        return _reservations(self._all(*statement_of(wanted, now_ms, limit)))

    def events_of(
        self, originator_id: str, *, after_version: int = 0, limit: int
    ) -> list[RecordedEvent]:
        """A page of one aggregate's events in order of version."""
        where = "originator_id = ? AND originator_version > ?"
        key = "originator_version"
        return self._page(where, (originator_id, after_version), limit, key)

    def pages_of(self, originator_id: str, after: int = 0) -> Iterator[list[RecordedEvent]]:
        """All events of one aggregate behind a version, in order, a page at a time."""
        while rows := self.events_of(originator_id, after_version=after, limit=HISTORY_ROWS):
            yield rows
            after = max(after + 1, rows[-1].originator_version)

    def history(self, originator_id: str, after: int = 0) -> Iterator[RecordedEvent]:
        """The same one by one."""
        return chain.from_iterable(self.pages_of(originator_id, after))

    def events_after(
        self, position: int, limit: int, *, stop: int | None = None, topics: Sequence[str] = ()
    ) -> list[RecordedEvent]:
        """A page of the log from just behind `position` on, up to and with `stop`, in order."""
        wheres = ["position > ?"]
        values: list[Any] = [position]
        if stop is not None:
            wheres.append("position <= ?")
            values.append(stop)
        if topics:
            wheres.append(f"topic IN ({', '.join('?' * len(topics))})")
            values += topics
        return self._page(" AND ".join(wheres), values, limit)

    def events_recorded(
        self, from_ms: int, to_ms: int, after: int, limit: int
    ) -> list[RecordedEvent]:
        """A page of the events behind the position `after`, recorded after `from_ms` and up
        to `to_ms`."""
        where = "position > ? AND recorded_at_ms > ? AND recorded_at_ms <= ?"
        return self._page(where, (after, from_ms, to_ms), limit)

    def _page(
        self, where: str, values: Sequence[Any], limit: int, key: str = "position"
    ) -> list[RecordedEvent]:
        return [RecordedEvent(*r) for r in read_page(self._reader, where, values, limit, key)]

    def log_id(self) -> str:
        """Which log it is: positions of another one mean nothing here."""
        return read_life(self._reader).log_id

    def is_deleted(self) -> bool:
        return read_life(self._reader).tombstone is not None

    def count_reservations(self) -> int:
        return self._count("SELECT count(*) FROM reservations")

    def count_pending(self) -> int:
        """Alarms that are yet to ring."""
        return self._count("SELECT count(*) FROM alarms WHERE next_run_time IS NOT NULL")

    def count_objects(self) -> dict[str, int]:
        """By class."""
        ids = self._all("SELECT id FROM objects")
        found = Counter(i.removeprefix(OBJECT_PREFIX).partition("/")[0] for (i,) in ids)
        return dict(sorted(found.items()))

    def servers(self, since_ms: int) -> list[str]:
        """The processes that have said since then that they serve."""
        found = self._all("SELECT process FROM servers WHERE seen_at_ms >= ?", (since_ms,))
        return sorted(process for (process,) in found)

    def _count(self, statement: str) -> int:
        count: int = self._all(statement)[0][0]
        return count

    def digest(self) -> str:
        """The checksum of the newest event, in hexadecimal; it covers the whole log."""
        return read_head(self._reader).checksum.hex()

    def head(self) -> Head:
        """The newest committed event; position 0 for an empty log."""
        return read_head(self._reader)

    def overview(self) -> Overview:
        """Counts over the whole store; a scan, so for starts and not for every request."""
        held, parked, soonest = self._one(
            "SELECT (SELECT count(*) FROM reservations WHERE status = 'held'),"
            " (SELECT count(*) FROM alarms WHERE next_run_time IS NULL),"
            " (SELECT min(next_run_time) FROM alarms)"
        )
        return Overview(held, parked, _ms(soonest))

    def backlog(self, scope: AlarmScope, now_ms: int) -> tuple[int, int]:
        """(how long the oldest due alarm of a scope has waited in ms, how many are parked)."""
        where, values = in_scope(scope, now_ms)
        oldest, parked, _ = self._one(
            "SELECT (SELECT next_run_time FROM alarms"
            f" WHERE next_run_time <= ? AND {where} ORDER BY next_run_time LIMIT 1),"
            " (SELECT count(*) FROM alarms WHERE next_run_time IS NULL),"
            " (SELECT max(position) FROM events)",  # if its end is damaged, no log grows
            (now_ms / 1000, *values),
        )
        oldest_ms = _ms(oldest)
        return (0 if oldest_ms is None else now_ms - oldest_ms), parked

    def census(self, scope: AlarmScope, now_ms: int) -> Census:
        """A scan, as `overview` is. An alarm that somebody works on is not overdue."""
        held, overdue, oldest = self._one(
            "SELECT (SELECT count(*) FROM reservations WHERE status = 'held'), count(*),"
            " min(next_run_time) FROM alarms WHERE next_run_time <= ?",
            (now_ms / 1000,),
        )
        backlog_ms, parked = self.backlog(scope, now_ms)
        oldest_ms = _ms(oldest)
        overdue_ms = 0 if oldest_ms is None else now_ms - oldest_ms
        return Census(held, overdue, overdue_ms, parked, self.head().position, backlog_ms)

    def has_alarm(self, alarm_id: str, job_state: bytes) -> bool:
        """Whether that alarm still has that state."""
        row = self._one("SELECT CAST(job_state AS BLOB) FROM alarms WHERE id = ?", (alarm_id,))
        return row is not None and row[0] == job_state

    def next_look(self, scope: AlarmScope, now_ms: int) -> float | None:
        """The earliest `next_run_time` of the alarms in a scope, in Unix seconds."""
        where, values = in_scope(scope, now_ms)
        row = self._one(
            "SELECT next_run_time FROM alarms WHERE next_run_time IS NOT NULL"
            f" AND {where} ORDER BY next_run_time LIMIT 1",
            values,
        )
        return None if row is None else row[0]

    def parked(self, limit: int, after: str = "") -> list[str]:
        """Ids of parked alarms, in order, those after the id `after`."""
        rows = self._all(
            "SELECT id FROM alarms WHERE next_run_time IS NULL AND id > ? ORDER BY id LIMIT ?",
            (after, limit),
        )
        return [row[0] for row in checked("alarms", rows, ID)]

    def alarms(
        self, *, due_at_ms: int | None = None, parked: bool = False, limit: int
    ) -> list[AlarmRow]:
        """Alarm rows, the earliest first: all, those due at an instant, or parked ones."""
        where, values = "", []
        if parked:
            where = " WHERE next_run_time IS NULL"
        elif due_at_ms is not None:
            where, values = " WHERE next_run_time <= ?", [due_at_ms / 1000]
        order = f"{where} ORDER BY next_run_time, id LIMIT ?"
        try:
            rows = self._all(
                f"SELECT {ALARMS.selected} FROM alarms{order}",
                (*values, limit),
            )
        except StoreDamaged:
            # Their index may be whole. A state of no bytes is one that cannot be read.
            found = self._all(f"SELECT id, next_run_time FROM alarms{order}", (*values, limit))
            rows = [(*row, self._job_state(row[0])) for row in found]
        return checked("alarms", rows, ALARMS.python_types)

    def _job_state(self, alarm_id: str) -> bytes:
        try:
            row = self._one("SELECT CAST(job_state AS BLOB) FROM alarms WHERE id = ?", (alarm_id,))
        except StoreDamaged:
            row = None
        return b"" if row is None else row[0]

    def strays(self, limit: int) -> list[str]:
        """Ids whose read model and alarm disagree: an alarm set and no row, or a row and
        no alarm set.

        Both tables are walked in the order of their keys. If every one has its alarm and
        there are as many of one as of the other, no alarm is left over.
        """
        without_alarm = self._all(
            "SELECT ? || name FROM reservations LEFT JOIN alarms ON alarms.id = ? || name"
            " WHERE alarm_at_ms IS NOT NULL AND alarms.id IS NULL"
            " UNION ALL SELECT objects.id FROM objects LEFT JOIN alarms USING (id)"
            " WHERE alarm_at_ms IS NOT NULL AND alarms.id IS NULL LIMIT ?",
            (ID_PREFIX, ID_PREFIX, limit),
        )
        if without_alarm or self.as_many_alarms_as_set():
            return [row[0] for row in without_alarm]
        alarms_alone = self._all(
            "SELECT alarms.id FROM alarms NOT INDEXED"
            " LEFT JOIN reservations ON reservations.name = substr(alarms.id, ?)"
            "  AND substr(alarms.id, 1, ?) = ?"
            " LEFT JOIN objects ON objects.id = alarms.id"
            " WHERE coalesce(reservations.alarm_at_ms, objects.alarm_at_ms) IS NULL LIMIT ?",
            (len(ID_PREFIX) + 1, len(ID_PREFIX), ID_PREFIX, limit),
        )
        return [row[0] for row in alarms_alone]

    def as_many_alarms_as_set(self) -> bool:
        """Whether the table of alarms has as many rows as holds and objects have alarms."""
        alarms, holds, objects = self._one(
            "SELECT (SELECT count(*) FROM alarms),"
            " (SELECT count(*) FROM reservations WHERE alarm_at_ms IS NOT NULL),"
            " (SELECT count(*) FROM objects WHERE alarm_at_ms IS NOT NULL)"
        )
        return bool(alarms == holds + objects)

    def has_objects(self, prefix: str) -> bool:
        """Whether there is an object whose id begins so."""
        begins, bounds = begins_with("id", prefix)
        return bool(self._one(f"SELECT EXISTS (SELECT 1 FROM objects WHERE {begins})", bounds)[0])

    def tokens(self) -> list[TokenRow]:
        """Who may ask, those that no longer may among them, the oldest first."""
        rows = self._all(f"SELECT {TOKENS.selected} FROM tokens ORDER BY created_at_ms, id")
        found: list[TokenRow] = checked("tokens", rows, TOKENS.python_types)
        return found

    def wanted_objects(self, owner: str) -> list[str]:
        """Objects of this owner that another process has asked for."""
        rows = self._all("SELECT id FROM ownerships WHERE owner = ? AND wanted = 1", (owner,))
        return [row[0] for row in rows]

    def owned_objects(self, owner: str) -> set[str]:
        return {row[0] for row in self._all("SELECT id FROM ownerships WHERE owner = ?", (owner,))}

    def other_owners(self, owner: str, now_ms: int) -> bool:
        """Whether another process runs objects of this database, too."""
        return bool(
            self._one(
                "SELECT EXISTS (SELECT 1 FROM owners WHERE token <> ? AND until_ms > ?)",
                (owner, now_ms),
            )[0]
        )

    def projections_behind(self) -> bool:
        """Whether the projections were last written for another position than the head, or
        are empty where the log is not."""
        position, projected, empty = self._one(
            "SELECT position, projected_position, NOT EXISTS"
            " (SELECT 1 FROM reservations UNION ALL SELECT 1 FROM objects) FROM log_head"
        )
        return bool(position != projected or (position > 0 and empty))

    def _one(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        rows = self._all(statement, parameters)
        return rows[0] if rows else None


def _reservations(rows: list[tuple[Any, ...]]) -> list[Reservation]:
    rows = checked("reservations", rows, RESERVATIONS.python_types)
    return [reservation_of(row) for row in rows]


def _ms(seconds: object) -> int | None:
    """Unix milliseconds for an alarm's time, None for none. Raises StoreDamaged."""
    if seconds is None:
        return None
    if type(seconds) is not float or not math.isfinite(seconds):
        raise StoreDamaged(f"an alarm is damaged: it would be looked at {seconds!r}")
    return ms_of_seconds(seconds)
