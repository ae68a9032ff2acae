"""Tokens in memory, read anew all the time: a request waits for no database to be let in.

A thread of its own reads them. While the database does not answer, those that were known
last are good, for as long as they live: nobody can revoke one meanwhile either.
"""

import logging
import threading

from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.tokens import Token, TokenBook

STOP_SECONDS = 1.0
READ_AGAIN_SECONDS = 0.5  # so that a revoked one is refused within a second

logger = logging.getLogger(__name__)


class TokenWatch:
    """`start()`, `find(...)` from any thread, `stop()`."""

    def __init__(self, queries: Queries, clock: Clock) -> None:
        self._queries = queries
        self._clock = clock
        self._book = TokenBook()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_told = False

    def start(self) -> None:
        """Reads them once and goes on with it. Raises StoreError if they cannot be read."""
        self.read()
        self._thread = threading.Thread(target=self._loop, name="tokens", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Waits for a read that is under way, and for a database that does not answer no
        longer than STOP_SECONDS. May be called twice."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            self._thread = None

    def read(self) -> None:
        self._book = TokenBook(self._queries.tokens())

    def find(self, authorization: bytes) -> Token | None:
        """The valid token of a client's Authorization header; None if it has none."""
        return self._book.find(authorization, self._clock)

    def find_by_id(self, id: str) -> Token | None:
        """The valid token of an id, for whoever has proved otherwise that it is theirs."""
        return self._book.find_by_id(id, self._clock)

    def _loop(self) -> None:
        while not self._stopping.wait(READ_AGAIN_SECONDS):
            try:
                self.read()
                self._is_told = False
            except ReservationExpiryError as error:
                if not self._is_told:
                    logger.warning("tokens are as they were, for they cannot be read: %s", error)
                self._is_told = True
