"""Reading on an event loop: at once or not at all.

A reader of a WAL database waits for nobody, but for whoever has locked the whole file (a
restore, a recovery, a foreign tool). An event loop must not wait for those.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from reservation_expiry.infrastructure.stores.sqlite.database import Database, SqliteRows


class QuickReader:
    """One connection, of one thread, made when it is first asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Every row of one statement. Raises StoreBusy rather than wait for a lock."""
        return self._rows().all(statement, parameters)

    def page(
        self, statement: str, parameters: Sequence[Any], key: str, limit_bytes: int
    ) -> list[Any]:
        """A page of events (`sql/rows.py`). Raises as `all`."""
        return self._rows().page(statement, parameters, key, limit_bytes)

    def _rows(self) -> SqliteRows:
        if self._connection is None:
            connection = self._database.connect(read_only=True)
            connection.execute("PRAGMA busy_timeout = 0")
            self._connection = connection
        return SqliteRows(self._connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
