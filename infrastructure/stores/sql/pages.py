"""Pages of the log that have a limit in bytes as well as in rows."""

from collections.abc import Sequence
from typing import Any

from reservation_expiry.infrastructure.errors import StoreDamaged
from reservation_expiry.infrastructure.stores.sql.rows import Reader
from reservation_expiry.infrastructure.stores.sql.tables import EVENTS
from reservation_expiry.infrastructure.stores.sql.typed import checked

PAGE_BYTES = 4 * 1024 * 1024  # of state in a page; an event that has more comes alone

_EVENT = f"SELECT {EVENTS.selected} FROM events"


def read_page(
    reader: Reader, where: str, values: Sequence[Any], limit: int, key: str = "position"
) -> list[tuple[Any, ...]]:
    """Rows of the log in order of `key`: at most `limit`, and as many as have PAGE_BYTES of
    state together, but one at least. Raises StoreDamaged."""
    statement = f"{_EVENT} WHERE {where} ORDER BY {key} LIMIT ?"
    rows = reader.page(statement, (*values, limit), key, PAGE_BYTES)
    return checked("events", rows, EVENTS.python_types)


def read_log(reader: Reader, after: int, upto: int, limit: int) -> list[tuple[Any, ...]]:
    """The next events behind one position, up to another. Raises StoreDamaged, also where
    they are not in order: whoever goes on behind the last must come to an end."""
    rows = read_page(reader, "position > ? AND position <= ?", (after, upto), limit)
    for row in rows:
        if row[0] <= after:
            raise StoreDamaged(f"position {row[0]} comes after position {after}")
        after = row[0]
    return rows
