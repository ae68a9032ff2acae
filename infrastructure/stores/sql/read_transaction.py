"""Long reads over one commit: what verifying and exporting stream through."""

from collections.abc import Iterable, Iterator
from typing import Any

from reservation_expiry.domain.ids import is_reservation, reservation_name
from reservation_expiry.infrastructure.stores.row_types import Chunk, ObjectChunk
from reservation_expiry.infrastructure.stores.sql.chunks import (
    AFTER_ALL_NAMES,
    next_ids,
    read_chunk,
    read_object_chunk,
)
from reservation_expiry.infrastructure.stores.sql.head import Head, read_head
from reservation_expiry.infrastructure.stores.sql.pages import read_log
from reservation_expiry.infrastructure.stores.sql.rows import PAGE_ROWS, Rows

_LAST_POSITION = 2**63 - 1


class ReadTransaction:
    """Reads that all see one commit (`Store.read_transaction`)."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def head(self) -> Head:
        """Raises DamagedLog if there is none."""
        return read_head(self.rows)

    def last_position(self) -> int:
        """The position of the last event that is really there, 0 if there is none."""
        last: int = self.rows.all("SELECT coalesce(max(position), 0) FROM events")[0][0]
        return last

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
                if isinstance(originator_id, str) and is_reservation(originator_id):
                    yield reservation_name(originator_id)

    def next_id(self, after_id: str, upto_id: str) -> str | None:
        """The next id in the log behind one, None if there is none up to another."""
        last_id, more = next_ids(self.rows, after_id, 1, upto_id)
        return last_id if more else None

    def chunk(self, after_name: str, limit: int, upto_name: str = AFTER_ALL_NAMES) -> Chunk:
        return read_chunk(self.rows, after_name, limit, upto_name)

    def object_chunk(self, after_id: str, limit: int) -> ObjectChunk:
        return read_object_chunk(self.rows, after_id, limit)

    def log(self, after: int = 0, upto: int = _LAST_POSITION) -> Iterator[list[tuple[Any, ...]]]:
        """The events behind one position up to another in order, a page at a time."""
        while page := self.log_page(after, upto):
            yield page
            after = page[-1][0]

    def log_page(self, after: int, upto: int, limit: int = PAGE_ROWS) -> list[tuple[Any, ...]]:
        """The first of these, no more than `limit`. Raises StoreDamaged."""
        return read_log(self.rows, after, upto, limit)
