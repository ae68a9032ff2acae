"""Reading on an event loop: at once or not at all.

A reader of a WAL database waits for nobody, but for whoever has locked the whole file (a
restore, a recovery, a foreign tool). An event loop must not wait for those.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from infrastructure.sqlite.database import Database, translate


class QuickReader:
    """One connection, of one thread, made when it is first asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Every row of one statement. Raises StoreBusy rather than wait for a lock."""
        if self._connection is None:
            self._connection = self._database.connect(read_only=True)
            self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise translate(error) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
