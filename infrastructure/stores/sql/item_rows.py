"""All rows that say what is taken of which item, one by one."""

from collections.abc import Iterator
from typing import Any

import msgspec

from reservation_expiry.domain.ids import ID_PREFIX, ITEM_PREFIX
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.domain.terms import Terms
from reservation_expiry.infrastructure.errors import StoreDamaged
from reservation_expiry.infrastructure.stores.row_types import ItemRow, LineRow
from reservation_expiry.infrastructure.stores.sql.rows import Rows
from reservation_expiry.infrastructure.stores.sql.tables import ITEMS, LINES, RESERVATIONS

_TAKING = f"""
SELECT {RESERVATIONS.selected} FROM reservations
WHERE terms IS NOT NULL AND status IN ('held', 'confirmed')"""
_CAPACITIES = """
SELECT originator_id, originator_version, topic, CAST(state AS BLOB) FROM events
WHERE originator_id > ? AND originator_id < ? ORDER BY originator_id, originator_version"""
_decode = msgspec.json.Decoder(Terms).decode


def reservation_of(row: tuple[Any, ...]) -> Reservation:
    """The state that a row of the read model was made of. Raises StoreDamaged."""
    (
        name,
        version,
        status,
        created_ms,
        expires_ms,
        expired_ms,
        count,
        alarm_ms,
        ended_ms,
        _,
        text,
    ) = row
    try:
        terms = None if text is None else _decode(text)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the terms of {name} cannot be read: {error}") from error
    return Reservation(
        ID_PREFIX + name,
        version,
        status,
        created_ms,
        expires_ms,
        expired_ms,
        count,
        alarm_ms,
        ended_ms,
        terms,
    )


def holds_that_take(rows: Rows) -> Iterator[Reservation]:
    """Those with terms that are held or confirmed."""
    return (reservation_of(row) for row in rows.stream(_TAKING))


def capacity_events(rows: Rows) -> Iterator[tuple[str, int, str, bytes]]:
    """(id, version, topic, state) of all items' events, in order."""
    return rows.stream(_CAPACITIES, (ITEM_PREFIX, ITEM_PREFIX[:-1] + "0"))


def all_items(rows: Rows) -> Iterator[ItemRow]:
    return rows.stream(f"SELECT {ITEMS.selected} FROM items")


def all_lines(rows: Rows) -> Iterator[LineRow]:
    return rows.stream(f"SELECT {LINES.selected} FROM lines")
