"""Hearing of alarms that other nodes have set for soon: LISTEN.

A notification that gets lost, as while the connection is made anew, costs no more than
the alarm clock's poll interval.
"""

import logging
import threading
from collections.abc import Callable

import psycopg

from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.stores.postgres.database import Database
from reservation_expiry.infrastructure.stores.postgres.session import CHANNEL

LISTEN_SECONDS = 0.25  # how long a stop may have to wait
AGAIN_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Watch:
    """Owns the listening thread: `start()`, `stop()`; calls `on_alarm(due_ms)` in it."""

    def __init__(self, database: Database, on_alarm: Callable[[int], object]) -> None:
        self._database = database
        self._on_alarm = on_alarm
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._loop, name="alarm-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except (psycopg.Error, ReservationExpiryError) as error:
                logger.warning("other nodes' alarms are looked for once a second: %s", error)
                self._stopping.wait(AGAIN_SECONDS)

    def _listen(self) -> None:
        with self._database.connect() as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while not self._stopping.is_set():
                for notification in connection.notifies(timeout=LISTEN_SECONDS):
                    self._on_alarm(_due_ms(notification.payload))


def _due_ms(payload: str) -> int:
    """What others of ours say; 0, so that it is looked at once, for what anybody else does."""
    return int(payload) if payload.isdigit() else 0
