"""Reservations for code on an event loop: nothing here stops the loop.

A hold is a future that its commit resolves. A read is made at once where that takes
microseconds; where it would wait (a locked file, a slow disk, a server) it goes to a thread.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter

from reservation_expiry.domain.ids import aggregate_id
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import ExpireReservation, HoldReservation
from reservation_expiry.infrastructure.errors import Overloaded, StoreBusy
from reservation_expiry.infrastructure.hold_commands import Answered, Command
from reservation_expiry.infrastructure.loop_writer import LoopWriter, settle
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.writer import OnDone

READ_THREADS = 24  # as many as there are connections for reading
READS_WAITING = 1_000  # beyond which readers are told to come back
SLOW_SECONDS = 0.02  # a read that stopped the loop for longer has the next ones elsewhere
SLOW_FOR_SECONDS = 1.0  # for so long


class WouldWait(Exception):
    """A read that would stop the loop."""


class AsyncReservations:
    """`hold`, `expire` and `get` of a started application, on the loop that is running."""

    def __init__(self, application: ReservationApplication) -> None:
        self._application = application
        self._loop = asyncio.get_running_loop()
        self.writer = LoopWriter(application.writer, self._loop)
        self._threads = ThreadPoolExecutor(READ_THREADS, "read")
        self._reading = 0
        self._quick = application.quick_reader()
        self._queries = None if self._quick is None else Queries(self._quick)
        self._slow_until = 0.0

    def close(self) -> None:
        if self._quick is not None:
            self._quick.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hold(self, name: str, ttl_seconds: int) -> Reservation:
        """As `ReservationApplication.hold`."""
        future = self._loop.create_future()
        self.submit_hold(name, ttl_seconds, partial(settle, future))
        state: Reservation = await future
        return state

    def submit_hold(self, name: str, ttl_seconds: int, on_done: OnDone) -> None:
        """The same without a future: `on_done` is called on the loop, after the commit, with
        the state or an error. Raises Overloaded at once."""

        def done(state: Reservation | None, error: BaseException | None) -> None:
            if error is None and state is not None:
                self._application.alarm_clock.wake_for(state.expires_at_ms)
            on_done(state, error)

        self.writer.submit(HoldReservation(aggregate_id(name), ttl_seconds), done)

    def submit_act(self, command: Command, on_done: OnDone) -> None:
        """As `ReservationApplication.act`, in the same way."""

        def done(answered: Answered | None, error: BaseException | None) -> None:
            if error is None and command.alarm_at_ms is not None:
                self._application.alarm_clock.wake_for(command.alarm_at_ms)
            on_done(answered, error)

        self.writer.submit(command, done)

    async def expire(self, name: str, now_ms: int) -> tuple[Reservation | None, bool]:
        """As `ReservationApplication.expire`."""
        found: tuple[Reservation | None, bool] = await self.writer.execute(
            ExpireReservation(aggregate_id(name), now_ms)
        )
        return found

    async def get(self, name: str) -> Reservation | None:
        """What the contract shows of a name that is known to be one."""
        try:
            return self.get_at_once(name)
        except WouldWait:
            return await self.get_in_thread(name)

    def get_at_once(self, name: str) -> Reservation | None:
        """The same if that takes microseconds. Raises WouldWait if not."""
        if self._queries is None or self._loop.time() < self._slow_until:
            raise WouldWait
        began = perf_counter()
        try:
            return self._queries.without_terms(name)
        except StoreBusy as error:
            raise WouldWait from error
        finally:
            if perf_counter() - began > SLOW_SECONDS:
                self._slow_until = self._loop.time() + SLOW_FOR_SECONDS

    def get_in_thread(self, name: str) -> "asyncio.Future[Reservation | None]":
        """The same in a thread of a few. Raises Overloaded if too many wait."""
        if self._reading >= READS_WAITING:
            raise Overloaded(f"{READS_WAITING} reads are waiting for the database")
        self._reading += 1
        future = self._loop.run_in_executor(self._threads, self._application.get, name)
        future.add_done_callback(self._note_read)
        return future

    def _note_read(self, _: object) -> None:
        self._reading -= 1
