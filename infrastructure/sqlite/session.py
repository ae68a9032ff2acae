"""The writer's connection: every statement of its transaction.

Each method is one statement however many rows it takes, because SQLite gives up the
interpreter lock at every statement, and many small ones make threads queue for it.
"""

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from infrastructure.comparison import Chunk
from infrastructure.errors import StoreBusy, StoreStopped
from infrastructure.objects.object_comparison import ObjectChunk
from infrastructure.projections import (
    AlarmRow,
    AlarmScope,
    ObjectRow,
    OwnerRow,
    ReservationRow,
    SnapshotRow,
)
from infrastructure.sqlite.alarm_scope import in_scope
from infrastructure.sqlite.chunks import read_chunk, read_object_chunk
from infrastructure.sqlite.database import BUSY_TIMEOUT_MS, Database, translate

# How many of an aggregate's newest events are fetched to decide on it: the current hold's.
TAIL_EVENTS = 4
# SQLite takes at most 32,766 variables in one statement; no statement comes near.
MAX_ROWS_PER_STATEMENT = 1_000
LOCK_POLL_SECONDS = 0.001
COURTESY_SECONDS = 2 * LOCK_POLL_SECONDS

EventRow = tuple[int, str, int, str, bytes, int, bytes]

_TAILS = f"""
SELECT events.originator_id, originator_version, topic, CAST(state AS BLOB)
FROM json_each(?) AS wanted CROSS JOIN events ON events.originator_id = wanted.value
WHERE originator_version > {-TAIL_EVENTS} + (
    SELECT max(originator_version) FROM events WHERE originator_id = wanted.value)
ORDER BY events.originator_id, originator_version"""
_HISTORY = """
SELECT originator_version, topic, CAST(state AS BLOB) FROM events
WHERE originator_id = ? AND originator_version > ? ORDER BY originator_version"""
_INSERT_EVENTS = """
INSERT INTO events (position, originator_id, originator_version, topic, state,
    recorded_at_ms, checksum) VALUES """
_PUT_ALARMS = "INSERT INTO alarms (id, next_run_time, job_state) VALUES "
_ON_ALARM = """ ON CONFLICT (id) DO UPDATE SET
    next_run_time = excluded.next_run_time, job_state = excluded.job_state"""
_PUT_OBJECTS = "INSERT INTO objects (id, version, alarm_at_ms) VALUES "
_ON_OBJECT = """ ON CONFLICT (id) DO UPDATE SET
    version = excluded.version, alarm_at_ms = excluded.alarm_at_ms"""
_PUT_SNAPSHOT = """
INSERT INTO snapshots (id, version, state) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, state = excluded.state"""
_ACQUIRE = """
INSERT INTO ownerships (id, owner, wanted) VALUES (?, ?, 0)
ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, wanted = 0
WHERE owner = excluded.owner OR NOT EXISTS (
    SELECT 1 FROM owners WHERE token = ownerships.owner AND until_ms > ?)"""
_RENEW_OWNER = """
INSERT INTO owners (token, until_ms, process) VALUES (?, ?, ?)
ON CONFLICT (token) DO UPDATE SET until_ms = excluded.until_ms"""
_PUT_RESERVATIONS = """
INSERT INTO reservations (name, version, status, created_at_ms, expires_at_ms,
    expired_at_ms, expiration_count, alarm_at_ms) VALUES """
_ON_RESERVATION = """ ON CONFLICT (name) DO UPDATE SET version = excluded.version,
    status = excluded.status, created_at_ms = excluded.created_at_ms,
    expires_at_ms = excluded.expires_at_ms, expired_at_ms = excluded.expired_at_ms,
    expiration_count = excluded.expiration_count, alarm_at_ms = excluded.alarm_at_ms"""


class SqliteSession:
    """One connection, used by one thread, one transaction at a time.

    Raises, from every method: StoreBusy, StoreFull, StoreUnavailable, VersionConflict.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._data_version: list[tuple[int]] | None = None

    def begin(self) -> None:
        """Takes the write lock, waiting for it up to the busy timeout.

        SQLite's own wait sleeps longer and longer, up to 100 ms, so that a process which
        has waited loses to one that has just come. Ours asks again every millisecond, and
        lets others go first if they have written since its last turn.
        """
        if self._connection is None:
            self._connection = self._database.connect()
            self._run("PRAGMA busy_timeout = 0")
        if self._others_wrote():
            time.sleep(COURTESY_SECONDS)
        deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self._run("BEGIN IMMEDIATE")
                return
            except StoreBusy:
                if time.monotonic() > deadline:
                    raise
            time.sleep(LOCK_POLL_SECONDS)

    def _others_wrote(self) -> bool:
        before, self._data_version = self._data_version, self._fetch("PRAGMA data_version")
        return before != self._data_version

    def commit(self) -> None:
        """Returns once the transaction is on disk."""
        self._run("COMMIT")

    def rollback(self) -> None:
        """Ends the transaction, if there is one, with nothing written."""
        if self._connection is not None and self._connection.in_transaction:
            self._run("ROLLBACK")

    def close(self) -> None:
        """Closes the connection; the next `begin` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def tails(self, aggregate_ids: Sequence[str]) -> list[tuple[str, int, str, bytes]]:
        """The newest TAIL_EVENTS events of each: (originator_id, version, topic, state)."""
        return self._fetch(_TAILS, (msgspec.json.encode(aggregate_ids).decode(),))

    def history(self, aggregate_id: str, after_version: int = 0) -> list[tuple[int, str, bytes]]:
        """All events of one aggregate, or those behind a version: (version, topic, state)."""
        return self._fetch(_HISTORY, (aggregate_id, after_version))

    def head(self) -> tuple[int, bytes]:
        """The newest committed position and its checksum."""
        return self._fetch("SELECT position, checksum FROM log_head")[0]

    def append(self, rows: Sequence[EventRow]) -> None:
        """Adds events and moves the head, and with it the projections, to the last."""
        self._insert(_INSERT_EVENTS, rows)
        position, checksum = rows[-1][0], rows[-1][-1]
        self._run(
            "UPDATE log_head SET position = ?, checksum = ?, projected_position = ?",
            (position, checksum, position),
        )

    def put_alarms(self, rows: Sequence[AlarmRow]) -> None:
        self._insert(_PUT_ALARMS, rows, _ON_ALARM)

    def delete_alarms(self, alarm_ids: Sequence[str]) -> None:
        self._delete("alarms", alarm_ids)

    def due_alarms(self, now_ms: int, limit: int, scope: AlarmScope) -> list[AlarmRow]:
        """Alarms whose time has come and which the scope has, the earliest first."""
        where, values = in_scope(scope, now_ms)
        return self._fetch(
            "SELECT id, next_run_time, CAST(job_state AS BLOB) FROM alarms"
            f" WHERE next_run_time <= ? AND {where} ORDER BY next_run_time LIMIT ?",
            (now_ms / 1000, *values, limit),
        )

    def alarm(self, alarm_id: str) -> AlarmRow | None:
        rows = self._fetch(
            "SELECT id, next_run_time, CAST(job_state AS BLOB) FROM alarms WHERE id = ?",
            (alarm_id,),
        )
        return rows[0] if rows else None

    def replace_alarm(self, expected: bytes, row: AlarmRow) -> bool:
        """Writes `row` if the alarm's state still is `expected`. Whether it was."""
        alarm_id, next_run_time, job_state = row
        changed = self._run(
            "UPDATE alarms SET next_run_time = ?, job_state = ?"
            " WHERE id = ? AND CAST(job_state AS BLOB) = ?",
            (next_run_time, job_state, alarm_id, expected),
        )
        return changed.rowcount == 1

    def park_alarm(self, alarm_id: str, expected: bytes) -> None:
        """Takes the alarm out of the clock's sight if its state still is `expected`."""
        self._run(
            "UPDATE alarms SET next_run_time = NULL WHERE id = ? AND CAST(job_state AS BLOB) = ?",
            (alarm_id, expected),
        )

    def remove_alarm(self, alarm_id: str, expected: bytes) -> bool:
        """Deletes the alarm if its state still is `expected`. Whether it was."""
        deleted = self._run(
            "DELETE FROM alarms WHERE id = ? AND CAST(job_state AS BLOB) = ?", (alarm_id, expected)
        )
        return deleted.rowcount == 1

    def chunk(self, after_name: str, limit: int) -> Chunk:
        """The log and its projections for the next `limit` names (see `chunks.py`)."""
        try:
            return read_chunk(self._run, after_name, limit)
        except sqlite3.Error as error:
            raise translate(error) from error

    def put_reservations(self, rows: Sequence[ReservationRow]) -> None:
        self._insert(_PUT_RESERVATIONS, rows, _ON_RESERVATION)

    def delete_reservations(self, names: Sequence[str]) -> None:
        self._delete("reservations", names, key="name")

    def object_row(self, object_id: str) -> ObjectRow | None:
        rows = self._fetch(
            "SELECT id, version, alarm_at_ms FROM objects WHERE id = ?", (object_id,)
        )
        return rows[0] if rows else None

    def put_objects(self, rows: Sequence[ObjectRow]) -> None:
        self._insert(_PUT_OBJECTS, rows, _ON_OBJECT)

    def delete_objects(self, object_ids: Sequence[str]) -> None:
        self._delete("objects", object_ids)

    def object_chunk(self, after_id: str, limit: int) -> ObjectChunk:
        """The log and its projections for the next `limit` objects (see `chunks.py`)."""
        try:
            return read_object_chunk(self._run, after_id, limit)
        except sqlite3.Error as error:
            raise translate(error) from error

    def snapshot(self, object_id: str) -> SnapshotRow | None:
        rows = self._fetch(
            "SELECT id, version, CAST(state AS BLOB) FROM snapshots WHERE id = ?", (object_id,)
        )
        return rows[0] if rows else None

    def put_snapshot(self, row: SnapshotRow) -> None:
        self._run(_PUT_SNAPSHOT, row)

    def delete_snapshots(self, object_ids: Sequence[str]) -> None:
        self._delete("snapshots", object_ids)

    def owner_of(self, object_id: str) -> str | None:
        rows = self._fetch("SELECT owner FROM ownerships WHERE id = ?", (object_id,))
        return rows[0][0] if rows else None

    def acquire(self, object_id: str, owner: str, now_ms: int) -> bool:
        """Makes the object the owner's unless another has it, who is then asked for it."""
        if self._run(_ACQUIRE, (object_id, owner, now_ms)).rowcount == 1:
            return True
        self._run("UPDATE ownerships SET wanted = 1 WHERE id = ? AND wanted = 0", (object_id,))
        return False

    def owners(self) -> list[OwnerRow]:
        return self._fetch("SELECT token, until_ms, process FROM owners")

    def renew_owner(self, row: OwnerRow) -> None:
        self._run(_RENEW_OWNER, row)

    def forget_owners(self, tokens: Sequence[str]) -> None:
        """Their objects are free."""
        self._delete("ownerships", tokens, key="owner")
        self._delete("owners", tokens, key="token")

    def release(self, object_ids: Sequence[str], owner: str) -> None:
        wanted = msgspec.json.encode(object_ids).decode()
        self._run(
            "DELETE FROM ownerships WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?",
            (wanted, owner),
        )

    def mark_written(self) -> None:
        """Has the commit write a page, though nothing is different after it.

        SQLite leaves a page alone that is overwritten with what it holds, hence two steps.
        """
        self._run("UPDATE log_head SET projected_position = projected_position + 1")
        self._run("UPDATE log_head SET projected_position = projected_position - 1")

    def mark_projected(self) -> None:
        """Says that the projections follow from the whole log."""
        self._run("UPDATE log_head SET projected_position = position")

    def _delete(self, table: str, keys: Sequence[str], key: str = "id") -> None:
        wanted = msgspec.json.encode(keys).decode()
        self._run(f"DELETE FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))", (wanted,))

    def _insert(self, insert: str, rows: Sequence[tuple], on_conflict: str = "") -> None:
        for start in range(0, len(rows), MAX_ROWS_PER_STATEMENT):
            chunk = rows[start : start + MAX_ROWS_PER_STATEMENT]
            row = f"({', '.join('?' * len(chunk[0]))})"
            values = ", ".join([row] * len(chunk))
            self._run(insert + values + on_conflict, [value for row in chunk for value in row])

    def _fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        cursor = self._run(statement, parameters)
        try:
            return cursor.fetchall()
        except sqlite3.Error as error:
            raise translate(error) from error

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        if self._connection is None:
            raise StoreStopped("there is no transaction")
        try:
            return self._connection.execute(statement, parameters)
        except sqlite3.Error as error:
            raise translate(error) from error
