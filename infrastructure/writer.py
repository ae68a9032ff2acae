"""The writer: one thread per process that runs every command, many in one commit.

Callers hand in a piece of work and wait. The thread takes all that waits, opens one
transaction, runs each piece against one unit of work, writes everything with one
statement per table and commits once; only then does any caller hear of it. While one
commit is on its way to the disk the next batch gathers by itself, so the busier the
service, the fewer commits each command costs.

Deciding happens inside the transaction, under the write lock, so within it nothing can
conflict; the unique (originator_id, originator_version) of the log stands behind that.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.errors import (
    ForkedProcess,
    OutcomeUnknown,
    Overloaded,
    StoreBusy,
    StoreError,
    StoreStopped,
    is_of_one,
)
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.measures import Measures
from reservation_expiry.infrastructure.stores.sql.session import Session
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

CALLERS_LIMIT = 1_000  # commands waiting, beyond which callers are told to come back
QUEUE_LIMIT = 2_000  # beyond which even the service's own are: claims, settlements, leases
BATCH_LIMIT = 1_000  # commands in one transaction
WAIT_LIMIT_SECONDS = 10.0  # how long a caller waits for its command to be taken up
OUTCOME_LIMIT_SECONDS = 4.0  # and how much longer for what becomes of it then

logger = logging.getLogger(__name__)


OnDone = Callable[[Any, BaseException | None], None]
"""Told the result, or the error."""


class _Ticket:
    __slots__ = ("done", "error", "on_done", "result", "taken", "work")

    def __init__(self, work: Work, on_done: OnDone | None = None) -> None:
        self.work = work
        self.on_done = on_done
        self.taken = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def finish(self) -> None:
        self.done.release()
        if self.on_done is not None:
            # What was decided and not committed is nobody's to see.
            self.on_done(self.result if self.error is None else None, self.error)


class Writer:
    """Owns the writer thread: `start()`, then `execute(work)`, then `stop()`.

    `open_session` makes the store's session; it is called in the writer's thread.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        mapper: EventMapper,
        clock: Clock,
        measures: Measures | None = None,
    ) -> None:
        self._open_session = open_session
        self._mapper = mapper
        self._clock = clock
        self._measures = measures or Measures()
        self._queue: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._taking = threading.Lock()
        self._accepting = False
        self._ended = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._transaction_began: float | None = None  # time.monotonic()
        self.last_transaction_ms = 0.0  # without the wait for whoever had the log's lock
        self._appends = False  # whether the transaction under way does
        self._append_error: tuple[BaseException, float] | None = None  # and when
        self.last_error: BaseException | None = None  # of the database as a whole, if that was last

    def start(self) -> None:
        self._accepting, self._ended = True, False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop, name="writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finishes what has been handed in, takes no more. May be called twice."""
        self._accepting = False
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    @property
    def queue_depth(self) -> int:
        """How many commands wait to be taken up."""
        return self._queue.qsize()

    @property
    def seconds_waiting(self) -> float:
        """How long the transaction under way has taken so far; 0 if there is none."""
        began = self._transaction_began
        return 0.0 if began is None else time.monotonic() - began

    def append_error(self, within_seconds: float) -> BaseException | None:
        """Of the last transaction that appends, if it failed for the database's sake so lately.
        Those that do not, such as claims, may do well meanwhile, and say nothing of it."""
        if self._append_error is None:
            return None
        error, at = self._append_error
        return error if time.monotonic() - at < within_seconds else None

    def execute(self, work: Work) -> Any:
        """Runs `work` in the next transaction and returns its result after the commit.

        Raises what the work raised; Overloaded if too many wait; StoreBusy if it was not
        taken up in time (it never will be, then); StoreStopped; StoreError if the
        transaction failed.
        """
        ticket = self._hand_in(_Ticket(work))
        if not ticket.done.acquire(timeout=WAIT_LIMIT_SECONDS):
            self._give_up(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def submit(self, work: Work, on_done: OnDone) -> None:
        """Hands `work` in and returns; `on_done` is called in the writer's thread, and must
        be quick. Raises Overloaded or StoreStopped, as `execute` does."""
        self._hand_in(_Ticket(work, on_done))

    def _hand_in(self, ticket: _Ticket) -> _Ticket:
        if os.getpid() != self._pid:
            raise ForkedProcess("this process was forked after the writer was started")
        if not self._accepting:
            raise StoreStopped("the service is shutting down")
        limit = QUEUE_LIMIT if ticket.work.keeps_house else CALLERS_LIMIT
        if self._queue.qsize() >= limit:
            raise Overloaded(f"{limit} commands are waiting for the database")
        self._queue.put(ticket)
        if self._ended:  # between the check above and the put
            self._refuse_the_rest()
        return ticket

    def _give_up(self, ticket: _Ticket) -> None:
        """Withdraws it if it is still in the queue, else waits for its outcome."""
        with self._taking:
            if not ticket.taken:
                ticket.taken = True
                raise StoreBusy("the write queue did not move in time")
        if not ticket.done.acquire(timeout=OUTCOME_LIMIT_SECONDS):
            raise OutcomeUnknown("the transaction is still under way")

    def _loop(self) -> None:
        session = self._open_session()
        stopping = False
        while not stopping:
            tickets, stopping = self._take()
            if tickets:
                self._run(session, tickets)
        session.close()
        self._ended = True
        self._refuse_the_rest()

    def _take(self) -> tuple[list[_Ticket], bool]:
        """All that waits, at most BATCH_LIMIT, and whether to stop after it."""
        waiting = [self._queue.get()]
        try:
            while waiting[-1] is not None and len(waiting) < BATCH_LIMIT:
                waiting.append(self._queue.get_nowait())
        except Empty:
            pass
        with self._taking:
            tickets = [t for t in waiting if t is not None and not t.taken]
            for ticket in tickets:
                ticket.taken = True
        return tickets, waiting[-1] is None

    def _run(self, session: Session, tickets: list[_Ticket]) -> None:
        """Runs them in one transaction, or in as few as one to blame for a failure allows."""
        self._run_by_halves(session, tickets)
        for ticket in tickets:
            try:
                ticket.finish()
            except Exception:
                logger.exception("who waited for a command could not be told")

    def _run_by_halves(self, session: Session, tickets: list[_Ticket]) -> None:
        """So that whoever is to blame is found in a few transactions, however many there are."""
        error = self._transact(session, tickets)
        if error is None:
            return
        if len(tickets) > 1 and is_of_one(error):
            middle = len(tickets) // 2
            self._run_by_halves(session, tickets[:middle])
            self._run_by_halves(session, tickets[middle:])
            return
        for ticket in tickets:
            ticket.error = _cause(error)

    def _transact(self, session: Session, tickets: list[_Ticket]) -> Exception | None:
        """One transaction. What made it fail as a whole, if anything did."""
        self._transaction_began = time.monotonic()
        try:
            self._run_in_transaction(session, tickets)
        except Exception as error:
            return self._abandon(session, error)
        finally:
            self._transaction_began = None
        self.last_error = None
        if self._appends:
            self._append_error = None
        return None

    def _run_in_transaction(self, session: Session, tickets: list[_Ticket]) -> None:
        works = [ticket.work for ticket in tickets]
        wanted = list({i for work in works for i in work.aggregate_ids})
        self._appends = any(work.appends for work in works)
        tails = session.begin(appends=self._appends, wanted=wanted)
        began = time.monotonic()
        now_ms = self._clock.now_ms()  # once the lock is ours, not before
        unit = UnitOfWork(session, self._mapper, now_ms, (wanted, tails))
        unit.load_objects(i for work in works for i in work.object_ids)
        unit.units.load(i for work in works for i in work.item_names)
        for ticket in tickets:
            if not ticket.work.on_tables:
                _attempt(ticket, unit)
                if session.is_aborted:
                    raise _StatementFailed(ticket.error)
        unit.flush()
        for ticket in tickets:
            if ticket.work.on_tables:
                ticket.result = ticket.work.run(unit)
        if self.last_error is not None:
            session.mark_written()  # an empty commit would not tell whether it works again
        committing = time.monotonic()
        session.commit()
        ended = time.monotonic()
        self.last_transaction_ms = (ended - began) * 1000
        self._measures.events.update(unit.kinds())
        self._measures.batch.observe(len(tickets))
        self._measures.commit.observe(ended - committing)

    def _abandon(self, session: Session, error: Exception) -> Exception:
        """Rolls back, and starts on a fresh connection if even that fails."""
        cause = _cause(error)
        if not is_of_one(cause):
            self.last_error = cause
            if self._appends:
                self._append_error = cause, time.monotonic()
        elif not isinstance(cause, StoreError):
            logger.exception("a transaction failed")
        try:
            session.rollback()
        except Exception as worse:
            if not isinstance(worse, StoreError):
                logger.exception("a transaction could not be rolled back")
            self._close(session)
        return error

    def _close(self, session: Session) -> None:
        """Whatever becomes of it: the next transaction has another connection."""
        try:
            session.close()
        except Exception:
            logger.exception("a connection could not be closed")

    def _refuse_the_rest(self) -> None:
        while True:
            try:
                ticket = self._queue.get_nowait()
            except Empty:
                return
            if ticket is not None:
                ticket.error = StoreStopped("the service is shutting down")
                ticket.finish()


class _StatementFailed(Exception):
    """A statement of one piece of work has failed, and with it the transaction."""

    def __init__(self, cause: BaseException | None) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _cause(error: Exception) -> BaseException:
    return error.cause or error if isinstance(error, _StatementFailed) else error


def _attempt(ticket: _Ticket, unit: UnitOfWork) -> None:
    """Runs one piece of work; its error is its caller's, not the batch's."""
    ticket.error = None
    try:
        ticket.result = ticket.work.run(unit)
    except ReservationExpiryError as error:
        ticket.error = error
    except Exception as error:
        logger.exception("a command failed unexpectedly")
        ticket.error = error
