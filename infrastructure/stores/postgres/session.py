"""The writer's connection: what is PostgreSQL's own about its transaction.

Whoever appends to the log first locks the one row of `log_head` and has the log to
itself until it commits. So events are decided and numbered one transaction after the
other, on whatever node, and no position becomes visible before a lower one.

Each transaction locks the writer's own row of `writers` first, and leaves its number
there. If the answer to a COMMIT is lost, that row tells, on a new connection and once the
server is done with the transaction, whether it was carried out; nothing is ever tried
again blindly.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any
from uuid import uuid4

import psycopg

from reservation_expiry.infrastructure.errors import (
    OutcomeUnknown,
    StoreError,
    StoreStopped,
    StoreUnavailable,
)
from reservation_expiry.infrastructure.instants import ms_of_seconds
from reservation_expiry.infrastructure.stores.postgres.arrays import TYPES, columns, texts
from reservation_expiry.infrastructure.stores.postgres.database import (
    NOW,
    OUTWORN,
    Database,
    PostgresRows,
    to_postgres,
    translate,
)
from reservation_expiry.infrastructure.stores.row_types import AlarmRow, EventRow
from reservation_expiry.infrastructure.stores.sql.head import Head, Life
from reservation_expiry.infrastructure.stores.sql.session import (
    MOVE_HEAD,
    TAIL_EVENTS,
    Session,
    TailRow,
)
from reservation_expiry.infrastructure.stores.sql.tables import EVENTS, Table

CHANNEL = "reservation_alarms"
NOTIFY_WITHIN_MS = 1_000  # an alarm due later is found by every node's own next look
ASK_OUTCOME_SECONDS = 6.0
ASK_AGAIN_SECONDS = 0.1
ASK_LOCK_MS = 1_000
STATEMENT_BYTES = 64 * 1024 * 1024  # of rows; the server takes 1 GiB, and they go in hex

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_LOCK = """
SELECT position, checksum, projected_position, log_id, tombstone FROM log_head FOR UPDATE"""
_TAILS = f"""
SELECT tail.* FROM unnest(?::text[]) AS wanted (id), LATERAL (
    SELECT originator_id, originator_version, topic, state FROM events
    WHERE originator_id = wanted.id ORDER BY originator_version DESC LIMIT {TAIL_EVENTS}
) AS tail ORDER BY originator_id, originator_version"""
_LEAVE_NUMBER = "UPDATE writers SET batch = ?, since_ms = ? WHERE token = ?"
_ENTER = f"""
INSERT INTO writers (token, batch, since_ms) VALUES (?, 0, ({NOW}))
ON CONFLICT (token) DO NOTHING"""
_SET_ASIDE = """
SELECT tablename FROM pg_tables
WHERE schemaname = current_schema() AND tablename ~ '^damaged_[a-z]+_[0-9]+$'"""
_OPTIONS = """
SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = to_regclass(?)"""
_LEAVE = "DELETE FROM writers WHERE token = ?"

logger = logging.getLogger(__name__)


class PostgresSession(Session):
    LOCK_ROWS = " FOR UPDATE SKIP LOCKED"

    def __init__(self, database: Database, *, patient: bool = False) -> None:
        self._database = database
        self._patient = patient
        self._connection: psycopg.Connection | None = None
        self._token = uuid4().hex  # of this writer's row, whatever connection it is on
        self._batch = 0
        self._is_suspect = False  # whether the driver may be wrong about what the server knows
        self._head: Head | None = None  # known while the log is locked
        self._life: Life | None = None
        self._head_moved = False
        self._waiting: list[tuple[str, str, Sequence[Any]]] = []  # (table, statement, values)
        self._soonest_ms: int | None = None  # of alarms that other nodes are to hear of

    def begin(self, *, appends: bool = True, wanted: Sequence[str] = ()) -> list[TailRow]:
        """Takes the lock on the log if it is to append, waiting for it up to the lock
        timeout. A connection that has gone since the last transaction is replaced."""
        fresh = self._connection is None
        try:
            return self._begin(appends, wanted)
        except StoreUnavailable:
            if fresh or not self._is_broken():
                raise
            self.close()
            return self._begin(appends, wanted)

    def _begin(self, appends: bool, wanted: Sequence[str]) -> list[TailRow]:
        """In one round trip: what is read behind the lock sees what was there when it
        became ours, and the clock read there never runs backwards in the log."""
        if self._connection is None:
            self._enter()
        self._head, self._head_moved, self._soonest_ms = None, False, None
        self._waiting.clear()
        # Our own row first: it stays locked until the server is done with this transaction,
        # and whoever asks what became of it has to wait for that.
        own = f"SELECT 1 FROM writers WHERE token = '{self._token}' FOR UPDATE"
        statements = [_BEGIN, own, *([_LOCK] if appends else []), NOW]
        if wanted:
            statements.append(_TAILS.replace("?", "'" + texts(wanted).replace("'", "''") + "'"))
        cursor = self._say("; ".join(statements))
        cursor.nextset()
        if cursor.fetchone() is None:
            return self._begin_anew(appends, wanted)
        if appends:
            cursor.nextset()
            locked = cursor.fetchone()
            if locked:
                self._head, self._life = Head(*locked[:3]), Life(*locked[3:])
        cursor.nextset()
        self._database.clock.observe(cursor.fetchall()[0][0])
        return cursor.fetchall() if wanted and cursor.nextset() else []

    def _begin_anew(self, appends: bool, wanted: Sequence[str]) -> list[TailRow]:
        """The row is gone, as after a failover to a standby that did not have it yet."""
        self._drop()
        return self._begin(appends, wanted)

    def _enter(self) -> None:
        """Connects, with a row in `writers` to leave the numbers of transactions in."""
        self._connection = self._database.connect(patient=self._patient)
        self._is_suspect = False
        try:
            self._run(_ENTER, (self._token,))
        except StoreError:
            self._drop()
            raise

    def commit(self) -> None:
        self._batch += 1
        if self._head_moved and self._head is not None:
            position, checksum, _ = self._head
            self._write("log_head", MOVE_HEAD, (position, checksum, position))
        now_ms = self._database.clock.now_ms()
        self._write("writers", _LEAVE_NUMBER, (self._batch, now_ms, self._token))
        self._is_suspect = True  # until it is known that all of it was looked at
        try:
            with self._in_use().pipeline():  # what waits, and the commit, in one round trip
                self._send_waiting()
                self._in_use().execute("COMMIT")
        except psycopg.Error as error:
            ours = translate(error)
            if not self._is_broken():
                raise ours from error
            self._find_out(ours)
        except StoreError as error:
            if not self._is_broken():
                raise
            self._find_out(error)
        self._is_suspect = False

    def _find_out(self, error: StoreError) -> None:
        """Returns if the transaction turns out to be committed. Raises StoreUnavailable if
        it is not, OutcomeUnknown if that cannot be told in time."""
        token, batch = self._token, self._batch
        self._drop()
        deadline = time.monotonic() + ASK_OUTCOME_SECONDS
        trouble: Exception | None = None
        while time.monotonic() < deadline:
            try:
                number = self._number_left(token)
            except (psycopg.Error, StoreError) as again:
                trouble = again
                time.sleep(ASK_AGAIN_SECONDS)
                continue
            if number is None:
                break
            if number != batch:
                nothing = "the connection was lost, and nothing was written"
                raise StoreUnavailable(nothing) from error
            logger.warning("the connection was lost during a commit; it had been carried out")
            return
        raise OutcomeUnknown(
            "the connection was lost during a commit, and whether it was carried out cannot "
            f"be found out: {trouble or 'nothing is known of this writer'}"
        ) from error

    def _number_left(self, token: str) -> int | None:
        """The number of the writer's last transaction, once the server works on none of
        its. None if the writer is not known."""
        with self._database.connect() as connection:
            connection.execute(f"SET lock_timeout = {ASK_LOCK_MS}")
            found = connection.execute(
                "SELECT batch FROM writers WHERE token = %s FOR UPDATE", (token,)
            ).fetchone()
        return None if found is None else found[0]

    def mark_written(self) -> None:
        """Nothing more: every commit leaves its number, and so writes."""

    def rollback(self) -> None:
        """Ends the transaction; and its connection with it if the driver may take a statement
        for prepared that the server has never looked at, as it looks at none behind one that
        failed in a pipeline, or has forgotten."""
        self._waiting.clear()
        if self._connection is None:
            return
        if self._is_suspect:
            self._drop()
        else:
            self._say("ROLLBACK")

    def close(self) -> None:
        if self._connection is None:
            return
        try:
            if self._connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                self._run(_LEAVE, (self._token,))
        except StoreError:
            pass  # old rows are swept at a start
        finally:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def head(self) -> Head:
        if self._head is None or self._life is None:
            return super().head()
        self._refuse_another(self._life)
        return self._head

    def append(self, rows: Sequence[EventRow]) -> None:
        """Adds events. The head moves with the commit, in the same round trip."""
        self._put(EVENTS, rows)
        position, checksum = rows[-1][0], rows[-1][-1]
        self._head, self._head_moved = Head(position, checksum, position), True

    def put_alarms(self, rows: Sequence[AlarmRow]) -> None:
        super().put_alarms(rows)
        for _, next_run_time, _ in rows:
            self._tell_others(next_run_time)

    def replace_alarm(self, expected: bytes, row: AlarmRow) -> bool:
        replaced = super().replace_alarm(expected, row)
        if replaced:
            self._tell_others(row[1])
        return replaced

    def _tell_others(self, next_run_time: float | None) -> None:
        """Has other nodes look at an alarm that is due before they would look anyway."""
        if next_run_time is None:
            return
        due_ms = ms_of_seconds(next_run_time)
        if due_ms < self._database.clock.now_ms() + NOTIFY_WITHIN_MS:
            self._soonest_ms = min(due_ms, self._soonest_ms or due_ms)

    def read_all(self, table: str) -> None:
        """By its indexes, which lead to each page of the table, too."""
        self._run("SET LOCAL enable_seqscan = off")
        self._run("SET LOCAL enable_sort = off")
        super().read_all(table)

    def set_aside_tables(self) -> list[str]:
        return [name for (name,) in self._fetch(_SET_ASIDE)]

    def set_aside(self, table: str, mark: int) -> None:
        aside = f"damaged_{table}_{mark}"
        ((options,),) = self._fetch(_OPTIONS, (table,))
        self._run(f"ALTER TABLE {table} RENAME TO {aside}")
        stored = f" WITH ({options})" if options else ""
        self._run(f"CREATE TABLE {table} (LIKE {aside} INCLUDING ALL){stored}")

    def tails(self, aggregate_ids: Sequence[str]) -> list[TailRow]:
        return self._fetch(_TAILS, (texts(aggregate_ids),))

    def _among(self, column: str, keys: Sequence[str]) -> tuple[str, object]:
        return f"{column} = ANY(?::text[])", texts(keys)

    def _put(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """In the order of the keys, so that all nodes take the rows' locks in one order."""
        rows = sorted(rows, key=_key)
        for piece in _pieces(rows, table.large) if table.large else (rows,):
            self._write(table.name, _put_statement(table), columns(table, piece))

    def _write(self, table: str, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Keeps it to be sent with others: every round trip gives up the interpreter lock
        to the threads that wait for it, and is long in coming back."""
        if any(table == waiting for waiting, _, _ in self._waiting):
            self._send_waiting()  # one statement must not change a row twice
        self._waiting.append((table, statement, parameters))

    def _send_waiting(self) -> None:
        """All that waits, in one statement."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        soonest_ms, self._soonest_ms = self._soonest_ms, None
        parts = ", ".join(f"{table}_ AS ({statement})" for table, statement, _ in waiting)
        values = [value for _, _, parameters in waiting for value in parameters]
        tell = "SELECT 1"
        if soonest_ms is not None:
            tell = f"SELECT pg_notify('{CHANNEL}', ?)"
            values.append(str(soonest_ms))
        self._execute(f"WITH {parts} {tell}", values)

    def _rows(self) -> PostgresRows:
        self._send_waiting()
        return PostgresRows(self._in_use(), self._translated)

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        self._send_waiting()
        return self._execute(statement, parameters)

    def _execute(self, statement: str, parameters: Sequence[Any]) -> int:
        try:
            return self._in_use().execute(to_postgres(statement), parameters).rowcount
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: psycopg.Error) -> StoreError:
        self._is_suspect = self._is_suspect or isinstance(error, OUTWORN)
        return translate(error)

    def _say(self, statements: str) -> psycopg.Cursor:
        """Several statements, without values, in one round trip."""
        try:
            return self._in_use().execute(statements, prepare=False)
        except psycopg.Error as error:
            raise translate(error) from error

    @property
    def is_aborted(self) -> bool:
        in_error = psycopg.pq.TransactionStatus.INERROR
        return self._connection is not None and (
            self._connection.info.transaction_status == in_error
        )

    def _is_broken(self) -> bool:
        return self._connection is None or self._connection.broken

    def _in_use(self) -> psycopg.Connection:
        if self._connection is None:
            raise StoreStopped("there is no transaction")
        return self._connection


def _pieces(rows: Sequence[tuple[Any, ...]], large: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    """The rows, cut where a statement would become too long for their `large` values."""
    start, size = 0, 0
    for number, row in enumerate(rows):
        size += len(row[large])
        if size > STATEMENT_BYTES and number > start:
            yield rows[start:number]
            start, size = number, 0
    yield rows[start:]


@cache
def _put_statement(table: Table) -> str:
    arrays = ", ".join(f"?::{TYPES[column.kind]}[]" for column in table.columns)
    return f"{table.insert}SELECT * FROM unnest({arrays}){table.on_conflict}"


def _key(row: tuple[Any, ...]) -> Any:
    return row[0]
