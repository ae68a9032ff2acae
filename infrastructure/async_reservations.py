"""Reservations for code on an event loop: nothing here stops the loop.

A hold is a future that its commit resolves. A read is made at once where that takes
microseconds; where it would wait (a locked file, a slow disk, a server) it goes to a thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

from reservation_expiry.domain.ids import aggregate_id
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import ExpireReservation, HoldReservation
from reservation_expiry.infrastructure.errors import Overloaded, StoreBusy
from reservation_expiry.infrastructure.loop_writer import LoopWriter
from reservation_expiry.infrastructure.stores.sql.queries import Queries

READ_THREADS = 24  # as many as there are connections for reading
READS_WAITING = 1_000  # beyond which readers are told to come back
SLOW_SECONDS = 0.02  # a read that stopped the loop for longer has the next ones elsewhere
SLOW_FOR_SECONDS = 1.0  # for so long

Result = TypeVar("Result")


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
        state: Reservation = await self.writer.execute(
            HoldReservation(aggregate_id(name), ttl_seconds)
        )
        self._application.alarm_clock.wake_for(state.expires_at_ms)
        return state

    async def expire(self, name: str, now_ms: int) -> tuple[Reservation | None, bool]:
        """As `ReservationApplication.expire`."""
        found: tuple[Reservation | None, bool] = await self.writer.execute(
            ExpireReservation(aggregate_id(name), now_ms)
        )
        return found

    async def get(self, name: str) -> Reservation | None:
        """As `ReservationApplication.get`, of a name that is known to be one."""
        if self._queries is None or self._loop.time() < self._slow_until:
            return await self.in_thread(lambda: self._application.get(name))
        began = perf_counter()
        try:
            return self._queries.reservation(name)
        except StoreBusy:
            return await self.in_thread(lambda: self._application.get(name))
        finally:
            if perf_counter() - began > SLOW_SECONDS:
                self._slow_until = self._loop.time() + SLOW_FOR_SECONDS

    async def in_thread(self, read: Callable[[], Result]) -> Result:
        """What `read` returns, in a thread of a few. Raises Overloaded if too many wait."""
        if self._reading >= READS_WAITING:
            raise Overloaded(f"{READS_WAITING} reads are waiting for the database")
        self._reading += 1
        try:
            return await self._loop.run_in_executor(self._threads, read)
        finally:
            self._reading -= 1
