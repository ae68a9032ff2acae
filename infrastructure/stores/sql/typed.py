"""Rows as their columns have them.

SQLite keeps in any column whatever a damaged page says: nothing, or a value of another type.
Rows are looked at here, once, where they are read, so that nothing further on need expect it.
"""

from types import NoneType
from typing import Any

from reservation_expiry.infrastructure.errors import StoreDamaged

Shape = tuple[frozenset[type], ...]


def shape(*columns: type) -> Shape:
    """The types that a value may have, column by column."""
    return tuple(frozenset([column]) for column in columns)


HEAD = shape(int, bytes, int)
LIFE: Shape = (frozenset([str]), frozenset([str, NoneType]))
ID = shape(str)


def checked(table: str, rows: list[Any], allowed: Shape) -> list[Any]:
    """The rows. Raises StoreDamaged, naming the first that has a value of another type."""
    if not _are_of(rows, allowed):
        damaged = next(row for row in rows if not _are_of([row], allowed))
        raise StoreDamaged(
            f"the row {damaged[0]!r} of {table} is damaged: it has a value of another type"
        )
    return rows


def _are_of(rows: list[Any], allowed: Shape) -> bool:
    """Column by column, which takes a tenth of what it takes row by row."""
    return all(
        types.issuperset(map(type, column))
        for types, column in zip(allowed, zip(*rows, strict=True), strict=False)
    )
