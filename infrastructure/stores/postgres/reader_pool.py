"""The connections that questions are asked on: no more than so many, made when needed.

A pool of ours, because it is on the way of every GET: the driver's own takes several locks
for a connection, and with forty threads that want the interpreter that halves the reads
(docs/decisions/0008-one-lock-on-the-log.md).
"""

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

import psycopg

from reservation_expiry.infrastructure.errors import StoreBusy

WAIT_SECONDS = 2.0
# A connection that is older is replaced: after a failover the one to the old server ends.
AGE_SECONDS = 60.0


class ReaderPool:
    """`take()` a connection, and `give_back()` what was taken. Safe from any thread."""

    def __init__(self, connect: Callable[[], psycopg.Connection], limit: int) -> None:
        self._connect = connect
        # Idle connections, and a None for one that has gone.
        self._idle: SimpleQueue[psycopg.Connection | None] = SimpleQueue()
        # One for each connection that was never made; counting must not need a lock.
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit):
            self._room.put(None)
        self._made_at: dict[psycopg.Connection, float] = {}
        self._closed = False

    def take(self) -> psycopg.Connection:
        """An idle connection, or a new one while there is room for one.

        Raises StoreBusy if all are in use for WAIT_SECONDS, StoreUnavailable if no new one
        can be made.
        """
        try:
            found = self._idle.get_nowait()
        except Empty:
            try:
                found = self._room.get_nowait()
            except Empty:
                found = self._wait()
        if found is not None:
            if monotonic() - self._made_at[found] < AGE_SECONDS:
                return found
            self._end(found)
        return self._make()

    def _wait(self) -> psycopg.Connection | None:
        try:
            return self._idle.get(timeout=WAIT_SECONDS)
        except Empty:
            raise StoreBusy("all connections for reading are in use") from None

    def _make(self) -> psycopg.Connection:
        try:
            connection = self._connect()
        except BaseException:
            self._idle.put(None)
            raise
        self._made_at[connection] = monotonic()
        return connection

    def give_back(self, connection: psycopg.Connection) -> None:
        """A broken one makes room for another."""
        if connection.closed or self._closed:
            self._end(connection)
            self._idle.put(None)
        else:
            self._idle.put(connection)

    def _end(self, connection: psycopg.Connection) -> None:
        del self._made_at[connection]
        connection.close()

    def forget_idle(self) -> None:
        """Closes those that nobody uses: what broke one may have broken all."""
        gone = 0
        with suppress(Empty):
            while True:
                found = self._idle.get_nowait()
                gone += 1
                if found is not None:
                    self._end(found)
        for _ in range(gone):
            self._idle.put(None)

    def close(self) -> None:
        """Closes idle connections now, and those in use as they come back."""
        self._closed = True
        self.forget_idle()
