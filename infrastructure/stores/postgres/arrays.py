"""Columns of rows as PostgreSQL's array literals.

The driver can do this, element by element in Python; for the rows of a batch that is more
work than everything else that a hold needs. A literal is one join.
(https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reservation_expiry.infrastructure.stores.sql.tables import Kind, Table

TYPES: Mapping[Kind, str] = {
    "key": "text",
    "text": "text",
    "integer": "bigint",
    "seconds": "double precision",
    "bytes": "bytea",
}
"""What PostgreSQL calls the kinds of columns."""


def columns(table: Table, rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """One literal for each column, of the rows' values in their order."""
    by_column = zip(table.columns, zip(*rows, strict=True), strict=True)
    return [_LITERAL_OF[column.kind](values) for column, values in by_column]


def texts(values: Iterable[str]) -> str:
    return "{" + ",".join([_quoted(value) for value in values]) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _texts_or_none(values: Iterable[str | None]) -> str:
    return "{" + ",".join(["NULL" if v is None else _quoted(v) for v in values]) + "}"


def _numbers(values: Iterable[float | None]) -> str:
    return "{" + ",".join(["NULL" if v is None else repr(v) for v in values]) + "}"


def _bytes(values: Iterable[bytes]) -> str:
    return "{" + ",".join([f'"\\\\x{value.hex()}"' for value in values]) + "}"


_LITERAL_OF: Mapping[Kind, Callable[[Iterable[Any]], str]] = {
    "key": texts,
    "text": _texts_or_none,
    "integer": _numbers,
    "seconds": _numbers,
    "bytes": _bytes,
}
