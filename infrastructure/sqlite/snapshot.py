"""Long reads over one commit: what verifying and exporting stream through."""

import sqlite3
from collections.abc import Iterator

from infrastructure.comparison import Chunk
from infrastructure.sqlite.chunks import read_chunk

PAGE_ROWS = 2_000

_LOG = """
SELECT position, originator_id, originator_version, topic, CAST(state AS BLOB),
    recorded_at_ms, checksum
FROM events ORDER BY position"""


class Snapshot:
    """Reads of a connection that is in a transaction (`Database.snapshot`)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def head(self) -> tuple[int, bytes, int]:
        """(committed position, its checksum, position the projections stand at)"""
        return self._connection.execute(
            "SELECT position, checksum, projected_position FROM log_head"
        ).fetchone()

    def chunk(self, after_name: str, limit: int) -> Chunk:
        return read_chunk(self._connection.execute, after_name, limit)

    def log(self) -> Iterator[list[tuple]]:
        """The whole log in order of position, a page of rows at a time."""
        cursor = self._connection.execute(_LOG)
        while page := cursor.fetchmany(PAGE_ROWS):
            yield page
