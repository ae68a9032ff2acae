"""Reading the log and its projections side by side, a range of ids at a time."""

from reservation_expiry.domain.ids import ID_PREFIX, OBJECT_PREFIX, reservation_name
from reservation_expiry.infrastructure.stores.row_types import Chunk, ObjectChunk
from reservation_expiry.infrastructure.stores.sql.rows import Rows
from reservation_expiry.infrastructure.stores.sql.tables import (
    ALARMS,
    OBJECTS,
    RESERVATIONS,
    SNAPSHOTS,
    Table,
)

AFTER_ALL_NAMES = "\U0010ffff"
OBJECT_ROWS = 16  # of objects' events at once: each may have megabytes

_LAST = """
SELECT max(originator_id) FROM (
    SELECT DISTINCT originator_id FROM events
    WHERE originator_id > ? AND originator_id <= ? ORDER BY originator_id LIMIT ?) AS wanted"""
_MORE = "SELECT EXISTS (SELECT 1 FROM events WHERE originator_id > ? AND originator_id <= ?)"
_EVENTS = """
SELECT originator_id, originator_version, topic, CAST(state AS BLOB), position FROM events
WHERE originator_id > ? AND originator_id <= ? ORDER BY originator_id, originator_version"""


def _range_of(table: Table) -> str:
    """The rows whose keys are in a range."""
    return f"SELECT {table.selected} FROM {table.name} WHERE {table.key} > ? AND {table.key} <= ?"


_ALARMS, _OBJECTS = _range_of(ALARMS), _range_of(OBJECTS)
_SNAPSHOTS, _RESERVATIONS = _range_of(SNAPSHOTS), _range_of(RESERVATIONS)


def read_chunk(rows: Rows, after_name: str, limit: int, upto_name: str = AFTER_ALL_NAMES) -> Chunk:
    """The next `limit` names behind `after_name`, with all projected rows in that range.

    The last chunk reaches to `upto_name`, so that rows with no events at all are seen too.
    One name alone may have a history that fills memory, so events come as a stream.
    """
    last_id, more = next_ids(rows, ID_PREFIX + after_name, limit, ID_PREFIX + upto_name)
    last_name = reservation_name(last_id)
    ids = (ID_PREFIX + after_name, last_id)
    reservations = {row[0]: row for row in rows.all(_RESERVATIONS, (after_name, last_name))}
    alarms = {row[0]: row for row in rows.all(_ALARMS, ids)}
    events = rows.stream(_EVENTS, ids)
    return Chunk(last_name if more else None, events, reservations, alarms)


def read_object_chunk(rows: Rows, after_id: str, limit: int) -> ObjectChunk:
    """The next `limit` objects behind the id `after_id`, as `read_chunk` does."""
    last_id, more = next_ids(rows, after_id, limit, OBJECT_PREFIX + AFTER_ALL_NAMES)
    ids = (after_id, last_id)
    objects = {row[0]: row for row in rows.all(_OBJECTS, ids)}
    alarms = {row[0]: row for row in rows.all(_ALARMS, ids)}
    snapshots = {row[0]: row for row in rows.all(_SNAPSHOTS, ids)}
    events = rows.stream(_EVENTS, ids, OBJECT_ROWS)
    return ObjectChunk(last_id if more else None, events, objects, alarms, snapshots)


def next_ids(rows: Rows, after: str, limit: int, upto: str) -> tuple[str, bool]:
    """The id that the next `limit` aggregates reach to, and whether more follow."""
    last_id = rows.all(_LAST, (after, upto, limit))[0][0]
    more = last_id is not None and rows.all(_MORE, (last_id, upto))[0][0]
    return (last_id, True) if more else (upto, False)
