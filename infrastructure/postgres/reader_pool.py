"""The connections that questions are asked on: no more than so many, made when needed.

A pool of ours, because it is on the way of every GET: the driver's own takes several locks
for a connection, and with forty threads that want the interpreter that halves the reads
(docs/scale.md).
"""

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

import psycopg

from infrastructure.errors import StoreBusy

WAIT_SECONDS = 2.0


class ReaderPool:
    """`take()` a connection, and `give_back()` what was taken. Safe from any thread."""

    def __init__(self, connect: Callable[[], psycopg.Connection], limit: int) -> None:
        self._connect = connect
        self._idle: SimpleQueue[psycopg.Connection] = SimpleQueue()
        # One for each connection that may still be made; counting must not need a lock.
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit):
            self._room.put(None)
        self._closed = False

    def take(self) -> psycopg.Connection:
        """An idle connection, or a new one while there is room for one.

        Raises StoreBusy if all are in use for WAIT_SECONDS, StoreUnavailable if no new one
        can be made.
        """
        with suppress(Empty):
            return self._idle.get_nowait()
        try:
            self._room.get_nowait()
        except Empty:
            return self._wait()
        try:
            return self._connect()
        except BaseException:
            self._room.put(None)
            raise

    def _wait(self) -> psycopg.Connection:
        try:
            return self._idle.get(timeout=WAIT_SECONDS)
        except Empty:
            raise StoreBusy("all connections for reading are in use") from None

    def give_back(self, connection: psycopg.Connection) -> None:
        """A broken one makes room for another."""
        if connection.closed or self._closed:
            connection.close()
            self._room.put(None)
        else:
            self._idle.put(connection)

    def forget_idle(self) -> None:
        """Closes those that nobody uses: what broke one may have broken all."""
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()
                self._room.put(None)

    def close(self) -> None:
        """Closes idle connections now, and those in use as they come back."""
        self._closed = True
        self.forget_idle()
