"""A writer whose batches a test makes up itself, and work for it that does what a test wants."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from reservation_expiry.infrastructure.commands import HoldReservation
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.sqlite.database import Database
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from reservation_expiry.infrastructure.writer import Writer
from tests.support.clock import ManualClock
from tests.support.invariants import Log, check_invariants

PATIENCE_SECONDS = 10.0  # far more than anything here takes


class CountingSession(SqliteSession):
    """Counts its commits, and does what it is told before each."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.commits = 0
        self.before_commit: Callable[[], object] = lambda: None

    def commit(self) -> None:
        self.before_commit()
        super().commit()
        self.commits += 1


class ObservedQueue(SimpleQueue):
    """Tells when something has been put in."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = threading.Semaphore(0)
        self.after_put: Callable[[], object] = lambda: None

    def put(self, item: Any) -> None:
        super().put(item)
        self.after_put()
        self.arrivals.release()


class Bench:
    """A writer whose batches a test makes up itself."""

    def __init__(self, path: Path, session_class: type[CountingSession] = CountingSession) -> None:
        self.path = path
        self.database = Database(path)
        self.session = session_class(self.database)
        self.writer = Writer(lambda: self.session, EventMapper(), ManualClock())
        self.queue = self.writer._queue = ObservedQueue()
        self.writer.start()

    def hand_in(self, work: Work) -> Future:
        """Has another thread execute it; returns when it is in the queue."""
        return self._once_it_is_in(lambda: self.writer.execute(work))

    def stop_soon(self) -> Future:
        """Has another thread stop the writer; returns when the stop is in the queue."""
        return self._once_it_is_in(self.writer.stop)

    def batch(self, *works: Work) -> list[Future]:
        """Runs them in one transaction, in this order. All are done when it returns."""
        busy = Busy()
        first = self.hand_in(busy)
        assert busy.has_begun.wait(PATIENCE_SECONDS)
        futures = [self.hand_in(work) for work in works]
        busy.may_end.set()
        for future in (first, *futures):
            future.exception(PATIENCE_SECONDS)
        return futures

    def invariants(self) -> Log:
        return check_invariants(self.path)

    def close(self) -> None:
        self.writer.stop()
        self.database.close()

    def _once_it_is_in(self, call: Callable[[], object]) -> Future:
        future = in_background(call)
        assert self.queue.arrivals.acquire(timeout=PATIENCE_SECONDS)
        return future


def in_background(call: Callable[[], Any]) -> Future:
    """Runs it in a thread that keeps nobody waiting, should it never come back."""
    future: Future = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Busy(Work):
    """Work that keeps the writer at it until it may end."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def run(self, unit: UnitOfWork) -> None:
        self.has_begun.set()
        assert self.may_end.wait(PATIENCE_SECONDS)


class Fails(Work):
    """Work that raises, in its own part of the transaction or on the tables."""

    aggregate_ids = ()

    def __init__(self, error: BaseException, *, on_tables: bool = False) -> None:
        self.on_tables = on_tables
        self._error = error

    def run(self, unit: UnitOfWork) -> None:
        raise self._error


def hold(name: str, ttl_seconds: int = 60) -> HoldReservation:
    return HoldReservation(f"reservation/{name}", ttl_seconds)


def results(futures: Sequence[Future]) -> list[Any]:
    return [future.result(PATIENCE_SECONDS) for future in futures]
