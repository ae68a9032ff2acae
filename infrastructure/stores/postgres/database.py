"""Connections to one PostgreSQL database, and the translation of what its driver raises.

Every wait has a limit (`settings.py` has the server's). A node that is frozen or cut off
inside a transaction loses it (IDLE_IN_TRANSACTION_MS) before those that wait for its lock
give up (LOCK_MS), and both come before its leases end.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from time import monotonic
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.waiting import Ready, Wait

from reservation_expiry.infrastructure.errors import (
    DatabaseRefused,
    RowRefused,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreStopped,
    StoreUnavailable,
    VersionConflict,
)
from reservation_expiry.infrastructure.machine.forks import RefusesAfterFork
from reservation_expiry.infrastructure.machine.redaction import redacted
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from reservation_expiry.infrastructure.stores.postgres import settings
from reservation_expiry.infrastructure.stores.postgres.clock import DatabaseClock
from reservation_expiry.infrastructure.stores.postgres.reader_pool import ReaderPool
from reservation_expiry.infrastructure.stores.postgres.settings import (
    LIMITS,
    PATIENT_LIMITS,
    UNANSWERED_MS,
)
from reservation_expiry.infrastructure.stores.sql.read_transaction import ReadTransaction
from reservation_expiry.infrastructure.stores.sql.rows import PAGE_ROWS
from reservation_expiry.infrastructure.stores.sql.tables import EVENTS

CONNECT_SECONDS = 3
ANSWER_SECONDS = 7.5  # a server that is there answers, or times out, sooner
RETRY_WITHIN_SECONDS = 1.0
READERS = 24  # connections for questions, per process, of a server's 100 or so

# What libpq is told unless the URL says something else.
DEFAULTS = {
    "application_name": "reservation-expiry",
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": UNANSWERED_MS,
    "target_session_attrs": "read-write",  # of several hosts, the one that was promoted
}
# Unix milliseconds, by the clock that all nodes agree on.
NOW = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


# It warns of what it could not end on a connection that is lost, of which we tell ourselves.
logging.getLogger("psycopg").setLevel(logging.ERROR)


class Database(RefusesAfterFork):
    """Opens connections to the database at `address` and lends some for reading.

    Raises, from every method: StoreBusy, StoreFull, StoreUnavailable, as the driver's
    error is; ForkedProcess in a child of the process that made it.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.clock = DatabaseClock()
        self._parameters = _parameters(address)
        self._closed = False
        self._schema: str | None = None
        super().__init__()
        self._readers = ReaderPool(self.connect, READERS)

    def connect(self, *, patient: bool = False) -> psycopg.Connection:
        """A new connection in autocommit mode, for one thread at a time, with our settings.
        A patient one may take as long as it takes.

        All are in the schema that the first one found, wherever a search path may lead by
        then. Raises DatabaseRefused if it cannot be told which schema is meant.
        """
        self.refuse_after_fork()
        try:
            connection = _Connection.connect(**self._parameters)
        except psycopg.Error as error:
            raise translate(error) from error
        connection.answer_seconds = ANSWER_SECONDS
        try:
            if self._schema is None:
                self._schema = self._find_schema(connection)
            settings.apply(connection, PATIENT_LIMITS if patient else LIMITS, self._schema)
        except psycopg.Error as error:
            connection.close()
            raise translate(error) from error
        except DatabaseRefused:
            connection.close()
            raise
        if patient:
            connection.answer_seconds = None
        return connection

    def _find_schema(self, connection: psycopg.Connection) -> str | None:
        settings.apply(connection, LIMITS, None)
        place = settings.find_place(connection)
        if place.others:
            raise DatabaseRefused(
                f"{self.address} has tables of ours in {' and in '.join(place.others)}, while its "
                f"search path leads to {place.schema}: say which is meant, as in "
                f"?options=-csearch_path%3D{place.others[0]}"
            )
        return place.schema

    @contextmanager
    def lent(self) -> Iterator[psycopg.Connection]:
        """A connection of those for reading, for something short."""
        connection = self._readers.take()
        try:
            yield connection
        except psycopg.Error as error:
            raise translate(error) from error
        finally:
            self._readers.give_back(connection)

    def doubts(self) -> list[str]:
        """Settings of the server with which it does not do what is promised, in words."""
        with self.lent() as connection:
            return settings.doubts(connection)

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Every row of one statement on a lent connection.

        A connection that turns out to be broken (its server restarted, perhaps), or to know
        other statements than its driver thinks, is replaced, once: a question may be asked
        again.
        """
        return self._asked(lambda rows: rows.all(statement, parameters))

    def page(
        self, statement: str, parameters: Sequence[Any], key: str, limit_bytes: int
    ) -> list[Any]:
        """A page of events (`sql/rows.py`), as `all`."""
        return self._asked(lambda rows: rows.page(statement, parameters, key, limit_bytes))

    def _asked(self, question: Callable[["PostgresRows"], list[Any]]) -> list[Any]:
        self.refuse_after_fork()
        if self._closed:
            raise StoreStopped("the database is closed")
        began = monotonic()
        while True:
            connection = self._readers.take()
            try:
                return question(PostgresRows(connection))
            except StoreError as error:
                if connection.broken:
                    self._readers.forget_idle()
                if isinstance(error.__cause__, OUTWORN):
                    connection.close()
                if not connection.closed or monotonic() - began > RETRY_WITHIN_SECONDS:
                    raise
                began -= RETRY_WITHIN_SECONDS  # once
            finally:
                self._readers.give_back(connection)

    @contextmanager
    def read_transaction(self) -> Iterator[ReadTransaction]:
        """Reads that see one commit, however long they take."""
        connection = self.connect(patient=True)
        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield ReadTransaction(PostgresRows(connection))
        except psycopg.Error as error:
            raise translate(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Closes idle readers now, and those on loan as they come back."""
        self._closed = True
        if not self._forked:
            self._readers.close()


class _Connection(psycopg.Connection):
    """The driver's, with another way to wait for an answer.

    The driver asks the system whether the socket can be written before it writes, though it
    nearly always can, and gives up the interpreter lock for that: a thread that lets go of
    it is behind all others that want it. Ours gives it up once for a statement, not twice.

    And it gives up a server that keeps the connection and does not answer: the statement
    timeout is the server's own, and a server that stands still keeps none.
    """

    answer_seconds: float | None = None

    def wait(self, gen: Any, *how: Any, **named: Any) -> Any:
        return super().wait(self._steps(gen), *how, **named)

    def _steps(self, steps: Generator[Wait, Ready | int, Any]) -> Generator[Wait, Ready | int, Any]:
        deadline = None if self.answer_seconds is None else monotonic() + self.answer_seconds
        try:
            awaited = next(steps)
            if awaited == Wait.RW:
                awaited = steps.send(Ready.W)  # if it was not all taken, this is asked again
            while True:
                ready = yield awaited  # which comes back now and then with nothing ready
                if not ready and deadline is not None and monotonic() > deadline:
                    self.pgconn.finish()
                    seconds = self.answer_seconds
                    raise psycopg.OperationalError(f"no answer within {seconds:g} s")
                awaited = steps.send(ready)
        except StopIteration as end:
            return end.value


class PostgresRows:
    """Reads on one connection (`sql/rows.py`)."""

    _names = count(1)

    def __init__(
        self,
        connection: psycopg.Connection,
        translated: Callable[[psycopg.Error], StoreError] | None = None,
    ) -> None:
        self._connection = connection
        self._translated = translated or translate

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._connection.execute(
                to_postgres(statement), parameters, binary=True
            ).fetchall()
        except psycopg.Error as error:
            raise self._translated(error) from error

    def page(
        self, statement: str, parameters: Sequence[Any], key: str, limit_bytes: int
    ) -> list[Any]:
        """The server knows how long a state is before it reads it."""
        within = _within(statement, key)
        return self.all(within, (*parameters, limit_bytes))

    def stream(
        self, statement: str, parameters: Sequence[Any] = (), page_rows: int = PAGE_ROWS
    ) -> Iterator[Any]:
        try:
            with self._connection.cursor(f"stream-{next(self._names)}") as cursor:
                cursor.itersize = page_rows
                cursor.execute(to_postgres(statement), parameters, binary=True)
                yield from cursor
        except psycopg.Error as error:
            raise translate(error) from error


@lru_cache(maxsize=64)
def _within(statement: str, key: str) -> str:
    columns = ", ".join(EVENTS.names)
    return (
        f"SELECT {columns} FROM (SELECT *, sum(length(state)) OVER (ORDER BY {key}) AS upto,"
        f" row_number() OVER (ORDER BY {key}) AS number FROM ({statement}) AS page) AS sized"
        f" WHERE upto <= ? OR number = 1 ORDER BY {key}"
    )


_INSTEAD = (
    ("?", "%s"),
    (" AS BLOB)", " AS bytea)"),
    (" NOT INDEXED", ""),
    (" instr(", ' "position"('),  # which takes them in the same order when it is called so
)


@lru_cache(maxsize=256)
def to_postgres(statement: str) -> str:
    """A statement of `sql/` as PostgreSQL and its driver take it."""
    for sqlite, ours in _INSTEAD:
        statement = statement.replace(sqlite, ours)
    return statement


# What it says of a statement that was prepared, and that it does not know, or not any more.
OUTWORN = (errors.InvalidSqlStatementName, errors.FeatureNotSupported)
# What the server says of one row or page, while it is there as a whole.
_DAMAGED = (
    errors.DataCorrupted,
    errors.IndexCorrupted,
    errors.InternalError_,  # as for a length that cannot be
    errors.IoError,
    errors.UndefinedFile,
)
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded)


def translate(error: psycopg.Error) -> StoreError:
    """Our error for a driver's error."""
    text = _first_line(error)
    if isinstance(error, errors.UniqueViolation):
        return VersionConflict(f"the event is in the log already: {text}")
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
        return StoreBusy("another node holds the log's lock")
    if isinstance(error, errors.QueryCanceled | errors.SerializationFailure):
        return StoreBusy(f"the database did not answer in time: {text}")
    if isinstance(error, errors.DiskFull):
        return StoreFull("the database server's disk is full")
    if isinstance(error, _DAMAGED):
        return StoreDamaged(f"the database is damaged: {text}")
    if isinstance(error, _REFUSED):
        return RowRefused(f"the database refuses a row: {text}")
    return StoreUnavailable(f"the database cannot be used: {text}")


def _first_line(error: psycopg.Error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return redacted(lines[0]) if lines else type(error).__name__


def _parameters(address: PostgresAddress) -> dict[str, Any]:
    try:
        said = conninfo_to_dict(address.url)
    except psycopg.Error:
        # The driver's sentence would quote the URL, password and all.
        raise DatabaseRefused(f"{address} is not a URL that PostgreSQL's libpq takes") from None
    return {**DEFAULTS, **said, "client_encoding": "UTF8", "autocommit": True}
