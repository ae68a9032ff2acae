"""Counters and lines of items against the log: capacities from their events, what is taken
from the terms of the holds, whose rows are held against the log name by name."""

from collections import Counter
from dataclasses import dataclass, field

from reservation_expiry.domain.ids import ITEM_PREFIX, item_name
from reservation_expiry.infrastructure.errors import UndecodableEvent
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.comparison import Difference
from reservation_expiry.infrastructure.stores.row_types import ItemRow, LineRow
from reservation_expiry.infrastructure.stores.sql.item_rows import (
    all_items,
    all_lines,
    capacity_events,
    holds_that_take,
)
from reservation_expiry.infrastructure.stores.sql.rows import Rows
from reservation_expiry.infrastructure.units import DEFAULT_CAPACITY, line_row, lines_taken


@dataclass(slots=True)
class ItemsFound:
    """The differences, and the rows that would mend them."""

    differences: list[Difference] = field(default_factory=list)
    put_items: list[ItemRow] = field(default_factory=list)
    put_lines: list[LineRow] = field(default_factory=list)
    delete_lines: list[str] = field(default_factory=list)


def compare_items(rows: Rows, mapper: EventMapper) -> ItemsFound:
    """Memory grows with the lines that are taken."""
    found = ItemsFound()
    capacities = _capacities(rows, mapper, found)
    taken: Counter[tuple[str, str]] = Counter()
    lines: dict[str, LineRow] = {}
    for state in holds_that_take(rows):
        for item, units in lines_taken(state):
            taken[item, state.status] += units
            row = line_row(state, item, units)
            lines[row[0]] = row
    there = {row[0]: row for row in all_items(rows)}
    for name in sorted({*capacities, *there, *(item for item, _ in taken)}):
        version, capacity = capacities.get(name, (0, DEFAULT_CAPACITY))
        right = (name, version, capacity, taken[name, "held"], taken[name, "confirmed"])
        if there.get(name) != right:
            found.put_items.append(right)
            found.differences.append(_difference(name, there.get(name), right))
    _compare_lines(rows, lines, found)
    return found


def _capacities(rows: Rows, mapper: EventMapper, found: ItemsFound) -> dict[str, tuple[int, int]]:
    """(version, capacity) of each item that was set."""
    capacities: dict[str, tuple[int, int]] = {}
    for row in capacity_events(rows):
        try:
            event = mapper.decode(*row)
        except UndecodableEvent as error:
            found.differences.append(Difference(row[0], None, str(error)))
            continue
        name = item_name(row[0])
        if name is not None:
            capacities[name] = (event.originator_version, event.capacity)
    return capacities


def _compare_lines(rows: Rows, right: dict[str, LineRow], found: ItemsFound) -> None:
    for row in all_lines(rows):
        if right.get(row[0]) == row:
            del right[row[0]]
        elif row[0] not in right:
            found.delete_lines.append(row[0])
            found.differences.append(
                Difference(ITEM_PREFIX + row[1], None, f"has a line of {row[2]} too many")
            )
    for line in right.values():
        found.put_lines.append(line)
        problem = f"has no right line of {line[2]}, which takes {line[3]}"
        found.differences.append(Difference(ITEM_PREFIX + line[1], None, problem))


def _difference(name: str, row: ItemRow | None, right: ItemRow) -> Difference:
    said = "no counters" if row is None else f"version, capacity, held, confirmed {row[1:]}"
    return Difference(ITEM_PREFIX + name, None, f"has {said}; the log says {right[1:]}")
