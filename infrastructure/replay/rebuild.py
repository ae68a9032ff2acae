"""Rebuilding the projections from the log, beside a running service.

The names are walked in order; each chunk is replayed, compared and repaired in one short
transaction of its own, so requests go on in between and no reader ever sees a table
that is half old and half new: a chunk is right when its transaction ends, and stays
right because every command keeps it so. Rows that were right are not written at all,
and an alarm that is still for the right time keeps its attempts, token and parking.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reservation_expiry.domain.ids import OBJECT_PREFIX
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.comparison import Difference, Found, compare
from reservation_expiry.infrastructure.replay.item_comparison import ItemsFound, compare_items
from reservation_expiry.infrastructure.replay.object_comparison import (
    CHUNK_OBJECTS,
    compare_objects,
)
from reservation_expiry.infrastructure.stores.store import Store
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from reservation_expiry.infrastructure.writer import Writer

CHUNK_NAMES = 1_000
REPORTED_DIFFERENCES = 1_000


@dataclass(slots=True)
class RebuildReport:
    aggregates: int = 0
    events: int = 0
    repaired: int = 0
    differences: list[Difference] = field(default_factory=list)  # the first of them


class RebuildChunk(Work):
    """Compares and repairs the next reservations. Returns what was found and where to go on."""

    on_tables = True

    def __init__(self, mapper: EventMapper, after: str) -> None:
        self._mapper = mapper
        self._after = after

    def run(self, unit: UnitOfWork) -> tuple[Found, str | None]:
        chunk = unit.session.chunk(self._after, CHUNK_NAMES)
        found = compare(chunk, self._mapper)
        if found.put_rows:
            unit.session.put_reservations(found.put_rows)
        if found.delete_rows:
            unit.session.delete_reservations(found.delete_rows)
        _repair_alarms(unit, found)
        return found, chunk.last_name


class RebuildObjects(RebuildChunk):
    """The same for the next durable objects, after which there is nothing more.

    A snapshot that is wrong is deleted; the object makes another in time.
    """

    def run(self, unit: UnitOfWork) -> tuple[Found, str | None]:
        chunk = unit.session.object_chunk(self._after, CHUNK_OBJECTS)
        found = compare_objects(chunk, self._mapper)
        if found.put_rows:
            unit.session.put_objects(found.put_rows)
        if found.delete_rows:
            unit.session.delete_objects(found.delete_rows)
        if found.delete_snapshots:
            unit.session.delete_snapshots(found.delete_snapshots)
        _repair_alarms(unit, found)
        if chunk.last_id is None:
            unit.session.mark_projected()
        return found, chunk.last_id


class RebuildItems(Work):
    """Compares and repairs the counters and lines of all items."""

    on_tables = True

    def __init__(self, mapper: EventMapper) -> None:
        self._mapper = mapper

    def run(self, unit: UnitOfWork) -> ItemsFound:
        found = compare_items(unit.session.reads(), self._mapper)
        if found.put_items:
            unit.session.put_items(found.put_items)
        if found.delete_lines:
            unit.session.delete_lines(found.delete_lines)
        if found.put_lines:
            unit.session.put_lines(found.put_lines)
        return found


def _repair_alarms(unit: UnitOfWork, found: Found) -> None:
    if found.put_alarms:
        unit.session.put_alarms(found.put_alarms)
    if found.delete_alarms:
        unit.session.delete_alarms(found.delete_alarms)


def rebuild(
    execute: Callable[[Work], Any],
    mapper: EventMapper,
    progress: Callable[[int], object] = lambda events: None,
) -> RebuildReport:
    """Walks the whole log. `execute` runs each chunk in a transaction; `progress` is told
    how many events it had.

    Raises StoreError if the database does not answer; what was repaired until then stays.
    """
    report = RebuildReport()
    for chunk, start in ((RebuildChunk, ""), (RebuildObjects, OBJECT_PREFIX)):
        after: str | None = start
        while after is not None:
            found, after = execute(chunk(mapper, after))
            report.aggregates += found.aggregates
            report.events += found.events
            report.repaired += found.rows_to_mend
            room = REPORTED_DIFFERENCES - len(report.differences)
            report.differences += found.differences[:room]
            progress(found.events)
    items: ItemsFound = execute(RebuildItems(mapper))
    report.repaired += len(items.put_items) + len(items.put_lines) + len(items.delete_lines)
    report.differences += items.differences[: REPORTED_DIFFERENCES - len(report.differences)]
    return report


def rebuild_store(store: Store) -> RebuildReport:
    """Rebuilds a database that nothing serves yet, with a writer of its own."""
    mapper = EventMapper()
    writer = Writer(store.session, mapper, store.clock)
    writer.start()
    try:
        return rebuild(writer.execute, mapper)
    finally:
        writer.stop()
