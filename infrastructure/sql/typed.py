"""Rows as their columns have them.

SQLite keeps in any column whatever a damaged page says: nothing, or a value of another type.
Rows are looked at here, once, where they are read, so that nothing further on need expect it.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from types import NoneType

from infrastructure.errors import StoreDamaged

Shape = frozenset[tuple[type, ...]]


def shape(*columns: type | tuple[type, ...]) -> Shape:
    """The types that a row may have, from those that each of its columns may have."""
    return frozenset(product(*(c if isinstance(c, tuple) else (c,) for c in columns)))


INTEGER_OR_NONE = (int, NoneType)
TIME = (float, NoneType)  # in Unix seconds

EVENT = shape(int, str, int, str, bytes, int, bytes)
RESERVATION = shape(str, int, str, int, int, INTEGER_OR_NONE, int, INTEGER_OR_NONE)
ALARM = shape(str, TIME, bytes)
ID = shape(str)


def is_of(row: Sequence, allowed: Shape) -> bool:
    return tuple(map(type, row)) in allowed


def checked(table: str, rows: Iterable[Sequence], allowed: Shape) -> list:
    """The rows. Raises StoreDamaged, naming the first column of one that is not as it may be."""
    rows = list(rows)
    for row in rows:
        if tuple(map(type, row)) not in allowed:
            raise StoreDamaged(
                f"the row {row[0]!r} of {table} is damaged: it has a value of another type"
            )
    return rows
