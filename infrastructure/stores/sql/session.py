"""The statements of a write transaction that are the same for every store."""

from abc import abstractmethod
from collections.abc import Sequence

from reservation_expiry.domain.ids import ID_PREFIX, reservation_name
from reservation_expiry.infrastructure.checksum import GENESIS
from reservation_expiry.infrastructure.errors import DamagedLog, LogDeleted, StoreUnavailable
from reservation_expiry.infrastructure.stores.row_types import (
    AlarmRow,
    AlarmScope,
    Chunk,
    EventRow,
    ObjectChunk,
    ObjectRow,
    ReservationRow,
    SnapshotRow,
)
from reservation_expiry.infrastructure.stores.sql.alarm_scope import in_scope
from reservation_expiry.infrastructure.stores.sql.beside_the_log import BesideTheLog
from reservation_expiry.infrastructure.stores.sql.chunks import read_chunk, read_object_chunk
from reservation_expiry.infrastructure.stores.sql.head import Head, Life, read_head, read_life
from reservation_expiry.infrastructure.stores.sql.rows import Rows
from reservation_expiry.infrastructure.stores.sql.tables import (
    ALARMS,
    EVENTS,
    EVERYTHING,
    OBJECTS,
    RESERVATIONS,
    SNAPSHOTS,
)

# How many of an aggregate's newest events are fetched to decide on it: the current hold's.
TAIL_EVENTS = 4

NO_LIMIT = 2**63 - 1

TailRow = tuple[str, int, str, bytes]
"""(originator_id, version, topic, state)"""

_HISTORY = """
SELECT originator_version, topic, CAST(state AS BLOB) FROM events
WHERE originator_id = ? AND originator_version > ? ORDER BY originator_version"""
_HISTORY_BEFORE = """
SELECT originator_version, topic, CAST(state AS BLOB) FROM events
WHERE originator_id = ? AND originator_version < ? ORDER BY originator_version DESC LIMIT ?"""
_ALARM = f"SELECT {ALARMS.selected} FROM alarms"
_IF_UNCHANGED = " WHERE id = ? AND CAST(job_state AS BLOB) = ?"
# In an order, so that a table is read by its key and an index by itself.
_ALL_OF = {
    "reservations": (
        "SELECT sum(length(status)) FROM"
        " (SELECT status FROM reservations ORDER BY name LIMIT ?) AS by_name",
    ),
    "alarms": (
        "SELECT sum(length(job_state)) FROM"
        " (SELECT job_state FROM alarms ORDER BY id LIMIT ?) AS by_id",
        "SELECT count(next_run_time) FROM"
        " (SELECT next_run_time FROM alarms ORDER BY next_run_time LIMIT ?) AS by_time",
    ),
    "attempts": (
        "SELECT sum(length(subject)) FROM"
        " (SELECT subject FROM attempts ORDER BY id LIMIT ?) AS by_id",
    ),
}
_OBJECTS_SET = """
SELECT id, alarm_at_ms FROM objects WHERE alarm_at_ms IS NOT NULL AND id > ?
ORDER BY id LIMIT ?"""
_RESERVATIONS_SET = """
SELECT ? || name, alarm_at_ms FROM reservations WHERE alarm_at_ms IS NOT NULL AND name > ?
ORDER BY name LIMIT ?"""
_DELETED = "UPDATE log_head SET position = 0, checksum = ?, projected_position = 0, tombstone = ?"
MOVE_HEAD = "UPDATE log_head SET position = ?, checksum = ?, projected_position = ?"


class Session(BesideTheLog):
    """One connection, used by one thread, one transaction at a time.

    Each method is one statement however many rows it takes. Raises, from every method:
    StoreBusy, StoreDamaged, StoreFull, StoreUnavailable, VersionConflict.
    """

    _log_id: str | None = None
    LOCK_ROWS = ""  # what keeps rows that another process is claiming from being claimed

    @property
    def is_aborted(self) -> bool:
        """Whether a failed statement has left a transaction of no use."""
        return False

    @abstractmethod
    def begin(self, *, appends: bool = True, wanted: Sequence[str] = ()) -> list[TailRow]:
        """Begins a transaction; one that `appends` has the log to itself until its end.

        Returns the `tails` of those wanted.
        """

    @abstractmethod
    def commit(self) -> None:
        """Returns once the transaction is on disk."""

    @abstractmethod
    def rollback(self) -> None:
        """Ends the transaction, if there is one, with nothing written."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection; the next `begin` opens another."""

    @abstractmethod
    def tails(self, aggregate_ids: Sequence[str]) -> list[TailRow]:
        """The newest TAIL_EVENTS events of each, in order of id and version."""

    # The log

    def history(self, aggregate_id: str, after_version: int = 0) -> list[tuple[int, str, bytes]]:
        """All events of one aggregate, or those behind a version: (version, topic, state)."""
        return self._fetch(_HISTORY, (aggregate_id, after_version))

    def history_before(
        self, aggregate_id: str, version: int, limit: int
    ) -> list[tuple[int, str, bytes]]:
        """The newest events of one aggregate before a version, the newest first."""
        return self._fetch(_HISTORY_BEFORE, (aggregate_id, version, limit))

    def reads(self) -> Rows:
        """Reads that see what the transaction has written."""
        return self._rows()

    def head(self) -> Head:
        """The newest committed event, or the transaction's own newest. Raises LogDeleted if
        the log is not the one any more that this session began with."""
        try:
            self._refuse_another(read_life(self._rows()))
            return read_head(self._rows())
        except DamagedLog as error:  # nobody's fault who appends, and not to be counted as one
            raise StoreUnavailable(f"the database cannot be used: {error}") from error

    def _refuse_another(self, life: Life) -> None:
        if life.tombstone is not None:
            raise LogDeleted("the namespace was deleted")
        if self._log_id is None:
            self._log_id = life.log_id
        elif self._log_id != life.log_id:
            raise LogDeleted("another log has begun in the place of this one")

    def counts(self) -> dict[str, int]:
        """How many rows each table of a log has."""
        return {t.name: self._one(f"SELECT count(*) FROM {t.name}")[0] for t in EVERYTHING}

    def delete_log(self, tombstone: str) -> None:
        """Empties every table, those that were set aside too, and says what there was."""
        for table in EVERYTHING:
            self._run(f"DELETE FROM {table.name}")
        for name in self.set_aside_tables():
            self._run(f"DROP TABLE {name}")
        self._run(_DELETED, (GENESIS, tombstone))

    def begin_log(self, log_id: str) -> None:
        """From now on it is this log, empty or as it was brought here."""
        self._run("UPDATE log_head SET log_id = ?, tombstone = NULL", (log_id,))
        self._log_id = log_id

    def append(self, rows: Sequence[EventRow]) -> None:
        """Adds events and moves the head, and with it the projections, to the last."""
        self._put(EVENTS, rows)
        position, checksum = rows[-1][0], rows[-1][-1]
        self._write("log_head", MOVE_HEAD, (position, checksum, position))

    def mark_projected(self) -> None:
        """Says that the projections follow from the whole log."""
        self._write("log_head", "UPDATE log_head SET projected_position = position")

    def mark_written(self) -> None:
        """Has the commit write something, though nothing is different after it.

        SQLite leaves a page alone that is overwritten with what it holds, hence two steps.
        """
        self._run("UPDATE log_head SET projected_position = projected_position + 1")
        self._run("UPDATE log_head SET projected_position = projected_position - 1")

    # Alarms

    def put_alarms(self, rows: Sequence[AlarmRow]) -> None:
        self._put(ALARMS, rows)

    def delete_alarms(self, alarm_ids: Sequence[str]) -> None:
        self._delete("alarms", alarm_ids)

    def due_alarms(self, now_ms: int, limit: int, scope: AlarmScope) -> list[AlarmRow]:
        """Alarms whose time has come and which the scope has, the earliest first; those
        that another transaction is claiming just now are left out."""
        where, values = in_scope(scope, now_ms)
        return self._fetch(
            # A limit that the planner knows, so that it never thinks of reading all that is due.
            f"{_ALARM} WHERE next_run_time <= ? AND {where} ORDER BY next_run_time LIMIT {limit:d}"
            + self.LOCK_ROWS,
            (now_ms / 1000, *values),
        )

    def alarm(self, alarm_id: str) -> AlarmRow | None:
        found: AlarmRow | None = self._one(f"{_ALARM} WHERE id = ?", (alarm_id,))
        return found

    def replace_alarm(self, expected: bytes, row: AlarmRow) -> bool:
        """Writes `row` if the alarm's state still is `expected`. Whether it was."""
        alarm_id, next_run_time, job_state = row
        changed = self._run(
            "UPDATE alarms SET next_run_time = ?, job_state = ?" + _IF_UNCHANGED,
            (next_run_time, job_state, alarm_id, expected),
        )
        return changed == 1

    def park_alarm(self, alarm_id: str, expected: bytes) -> None:
        """Takes the alarm out of the clock's sight if its state still is `expected`."""
        park = "UPDATE alarms SET next_run_time = NULL" + _IF_UNCHANGED
        self._write("alarms", park, (alarm_id, expected))

    def remove_alarm(self, alarm_id: str, expected: bytes) -> bool:
        """Deletes the alarm if its state still is `expected`. Whether it was."""
        return self._run("DELETE FROM alarms" + _IF_UNCHANGED, (alarm_id, expected)) == 1

    def alarms_set(self, after_id: str, limit: int) -> list[tuple[str, int]]:
        """(id, when) of the next alarms behind an id that the read model says are set."""
        name = reservation_name(after_id)
        if after_id < ID_PREFIX:  # objects come before reservations
            found = self._fetch(_OBJECTS_SET, (after_id, limit))
            if found:
                return found
            name = ""
        return self._fetch(_RESERVATIONS_SET, (ID_PREFIX, name, limit))

    # The read model

    def put_reservations(self, rows: Sequence[ReservationRow]) -> None:
        self._put(RESERVATIONS, rows)

    def delete_reservations(self, names: Sequence[str]) -> None:
        self._delete("reservations", names, key="name")

    def chunk(self, after_name: str, limit: int) -> Chunk:
        """The log and its projections for the next `limit` names (see `chunks.py`)."""
        return read_chunk(self._rows(), after_name, limit)

    # Projections that are damaged

    def read_all(self, table: str) -> None:
        """Each page of a table that can be made anew, and of its indexes. Raises StoreDamaged."""
        for statement in _ALL_OF[table]:
            self._fetch(statement, (NO_LIMIT,))

    def times_set_aside(self, table: str) -> int:
        """How often a table of this name was set aside."""
        return sum(name.startswith(f"damaged_{table}_") for name in self.set_aside_tables())

    @abstractmethod
    def set_aside_tables(self) -> list[str]:
        """The names of all that were."""

    @abstractmethod
    def set_aside(self, table: str, mark: int) -> None:
        """Puts an empty one in the place of the table, which stays as damaged_<table>_<mark>.
        A mark must be used once only."""

    # Durable objects

    def object_row(self, object_id: str) -> ObjectRow | None:
        select = f"SELECT {OBJECTS.selected} FROM objects WHERE id = ?"
        found: ObjectRow | None = self._one(select, (object_id,))
        return found

    def put_objects(self, rows: Sequence[ObjectRow]) -> None:
        self._put(OBJECTS, rows)

    def delete_objects(self, object_ids: Sequence[str]) -> None:
        self._delete("objects", object_ids)

    def object_chunk(self, after_id: str, limit: int) -> ObjectChunk:
        """The log and its projections for the next `limit` objects (see `chunks.py`)."""
        return read_object_chunk(self._rows(), after_id, limit)

    def snapshot(self, object_id: str) -> SnapshotRow | None:
        select = f"SELECT {SNAPSHOTS.selected} FROM snapshots WHERE id = ?"
        found: SnapshotRow | None = self._one(select, (object_id,))
        return found

    def put_snapshot(self, row: SnapshotRow) -> None:
        self._put(SNAPSHOTS, [row])

    def delete_snapshots(self, object_ids: Sequence[str]) -> None:
        self._delete("snapshots", object_ids)
