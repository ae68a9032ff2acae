"""A whole log into an empty schema of a server, in one transaction, under the log's lock."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from reservation_expiry.infrastructure.errors import ImportRefused, StoreError
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.postgres.database import Database
from reservation_expiry.infrastructure.stores.postgres.schema import migrate
from reservation_expiry.infrastructure.stores.postgres.session import PostgresSession
from reservation_expiry.infrastructure.stores.row_types import EventRow

Verified = TypeVar("Verified")


class ServerFilling:
    """Nobody sees any of it before all is there."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session = PostgresSession(database, patient=True)

    def append(self, batches: Iterable[list[EventRow]]) -> None:
        migrate(self._database)
        self._session.begin()
        if self._session.head().position:
            raise ImportRefused(
                f"{self._database.address} holds events already: use an empty schema"
            )
        for rows in batches:
            if rows:
                self._session.append(rows)

    @contextmanager
    def transaction(self) -> Iterator[PostgresSession]:
        """The one that `append` began."""
        yield self._session

    def finish(self, verify: Callable[[Address], Verified]) -> Verified:
        """Commits, then verifies what is there."""
        self._session.commit()
        self.close()
        return verify(self._database.address)

    def close(self) -> None:
        """Undoes what is not committed."""
        with suppress(StoreError):
            self._session.rollback()
        self._session.close()


@contextmanager
def filling(database: Database) -> Iterator[ServerFilling]:
    one = ServerFilling(database)
    try:
        yield one
    finally:
        one.close()
