"""Reading on behind what cannot be read, so that as much as can be is verified.

A damaged page makes a read fail that comes upon it, wherever the rest of the read was. So a
part that fails is read again in smaller ones, and what fails by itself is named and left out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from reservation_expiry.infrastructure.errors import StoreDamaged
from reservation_expiry.infrastructure.stores.sql.read_transaction import ReadTransaction
from reservation_expiry.infrastructure.stores.sql.rows import PAGE_ROWS

SMALLER = 16  # times

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The events behind one position up to and with another cannot be read."""

    after: int
    upto: int
    why: str


def log_past_damage(
    reads: ReadTransaction, after: int, upto: int
) -> Iterator[list[tuple[Any, ...]] | Unreadable]:
    """Pages of the log in order, and which events cannot be read in between."""
    limit = PAGE_ROWS
    while after < upto:
        try:
            page = reads.log_page(after, upto, limit)
        except StoreDamaged as error:
            if limit > 1:
                limit = max(limit // SMALLER, 1)
                continue
            end = _end_of_damage(reads, after, upto)
            yield Unreadable(after, end, str(error))
            after, limit = end, PAGE_ROWS
            continue
        if not page:
            return
        yield page
        after = page[-1][0]
        limit = min(limit * SMALLER, PAGE_ROWS)


def _end_of_damage(reads: ReadTransaction, after: int, upto: int) -> int:
    """The position behind which an event can be read again, the one behind `after` cannot."""
    step = 1
    while after + step < upto and not _is_readable(reads, after + step, upto):
        after += step
        step *= 2
    readable = min(after + step, upto)
    while readable - after > 1:
        middle = (after + readable) // 2
        if _is_readable(reads, middle, upto):
            readable = middle
        else:
            after = middle
    return readable


def _is_readable(reads: ReadTransaction, after: int, upto: int) -> bool:
    try:
        reads.log_page(after, upto, 1)
    except StoreDamaged:
        return False
    return True


def chunks_past_damage(
    read: Callable[[str, int], tuple[Result, str | None]],
    next_after: Callable[[str], str | None],
    note: Callable[[str | None, str, StoreDamaged], object],
    after: str,
    limit: int,
) -> Iterator[Result]:
    """What `read(after, size)` brings, which also says where to go on, None for nowhere.

    An aggregate that cannot be read is told to `note(name, after, error)`, its name being
    None if not even that can be found out, which is the end.
    """
    place: str | None = after
    size = limit
    while place is not None:
        try:
            found, following = read(place, size)
        except StoreDamaged as error:
            if size > 1:
                size = max(size // SMALLER, 1)
                continue
            following = _next(next_after, place)
            note(following, place, error)
        else:
            yield found
            size = min(size * SMALLER, limit)
        place = following


def _next(next_after: Callable[[str], str | None], place: str) -> str | None:
    try:
        return next_after(place)
    except StoreDamaged:
        return None
