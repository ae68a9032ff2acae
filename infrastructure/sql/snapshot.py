"""Long reads over one commit: what verifying and exporting stream through."""

from collections.abc import Iterable, Iterator
from itertools import islice

from domain.reservation import ID_PREFIX
from infrastructure.comparison import Chunk
from infrastructure.objects.object_comparison import ObjectChunk
from infrastructure.sql.chunks import AFTER_ALL_NAMES, read_chunk, read_object_chunk
from infrastructure.sql.rows import Rows

PAGE_ROWS = 2_000

_LOG = """
SELECT position, originator_id, originator_version, topic, CAST(state AS BLOB),
    recorded_at_ms, checksum
FROM events WHERE position > ? AND position <= ? ORDER BY position"""
_LAST_POSITION = 2**63 - 1


class Snapshot:
    """Reads that all see one commit (`Store.snapshot`)."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def head(self) -> tuple[int, bytes, int]:
        """(committed position, its checksum, position the projections stand at)"""
        return self.rows.all("SELECT position, checksum, projected_position FROM log_head")[0]

    def last_position(self) -> int:
        """The position of the last event that is really there, 0 if there is none."""
        return self.rows.all("SELECT coalesce(max(position), 0) FROM events")[0][0]

    def checksum_at(self, position: int) -> bytes | None:
        """The checksum stored with an event, None if there is no such event."""
        rows = self.rows.all("SELECT checksum FROM events WHERE position = ?", (position,))
        return rows[0][0] if rows else None

    def names_at(self, positions: Iterable[int]) -> Iterator[str]:
        """The names of the reservations whose events stand there, gaps left out."""
        for position in positions:
            for (originator_id,) in self.rows.all(
                "SELECT originator_id FROM events WHERE position = ?", (position,)
            ):
                if originator_id.startswith(ID_PREFIX):
                    yield originator_id.removeprefix(ID_PREFIX)

    def chunk(self, after_name: str, limit: int, upto_name: str = AFTER_ALL_NAMES) -> Chunk:
        return read_chunk(self.rows, after_name, limit, upto_name)

    def object_chunk(self, after_id: str, limit: int) -> ObjectChunk:
        return read_object_chunk(self.rows, after_id, limit)

    def log(self, after: int = 0, upto: int = _LAST_POSITION) -> Iterator[list[tuple]]:
        """The events behind one position up to another in order, a page of rows at a time."""
        rows = self.rows.stream(_LOG, (after, upto))
        while page := list(islice(rows, PAGE_ROWS)):
            yield page
