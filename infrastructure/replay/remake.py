"""Making a projection anew, beside a running service, whose table on the disk is damaged.

Rebuilding (`rebuild.py`) repairs rows; a page that cannot be read it can neither read nor write,
nor, in SQLite, a full page beside it. So the table is set aside, under another name and
untouched, and another takes its place, all in one transaction. The log itself is nobody's
to make: what stands on a damaged page of it is gone until a backup is restored.
"""

import logging
from collections.abc import Callable
from typing import Any

from reservation_expiry.infrastructure.alarm_row import row_set_to
from reservation_expiry.infrastructure.errors import StoreDamaged
from reservation_expiry.infrastructure.replay.rebuild import RebuildChunk
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

ROWS_AT_ONCE = 1_000  # in a statement
# A longer log takes seconds to replay, with everybody waiting for it. And of so many holds
# those on three pages are few.
REPLAYED_EVENTS = 200_000

logger = logging.getLogger(__name__)


class ReadAll(Work):
    """Finds out whether a table is damaged: raises StoreDamaged then."""

    on_tables = True
    appends = False

    def __init__(self, table: str) -> None:
        self._table = table
        self.set_aside: int | None = None  # how many such tables were before

    def run(self, unit: UnitOfWork) -> None:
        self.set_aside = unit.session.times_set_aside(self._table)
        unit.session.read_all(self._table)


class Remake(Work):
    """Makes `table` anew. Returns how many rows it has, or None if that is not to be: another
    process was faster, for there are not `set_aside` old ones any more, or it takes too long.
    """

    on_tables = True
    table = ""

    def __init__(self, set_aside: int | None) -> None:
        self._set_aside = set_aside

    def run(self, unit: UnitOfWork) -> int | None:
        if unit.session.times_set_aside(self.table) != self._set_aside or self.is_too_long(unit):
            return None
        unit.session.set_aside(self.table, unit.now_ms)
        return self.fill(unit)

    def is_too_long(self, unit: UnitOfWork) -> bool:
        return False

    def fill(self, unit: UnitOfWork) -> int:
        raise NotImplementedError


class RemakeReservations(Remake):
    """From the log."""

    table = "reservations"

    def is_too_long(self, unit: UnitOfWork) -> bool:
        return unit.session.head().position > REPLAYED_EVENTS

    def fill(self, unit: UnitOfWork) -> int:
        count = 0
        after: str | None = ""
        while after is not None:
            found, after = RebuildChunk(unit.mapper, after).run(unit)
            count += len(found.put_rows)
        return count


class RemakeAlarms(Remake):
    """From what the read model says is set.

    What else there was to know is lost: in whose hands they are, how often they were tried.
    But a hold whose alarm cannot be read would never end.
    """

    table = "alarms"

    def fill(self, unit: UnitOfWork) -> int:
        count, after = 0, ""
        while found := unit.session.alarms_set(after, ROWS_AT_ONCE):
            unit.session.put_alarms([row_set_to(*alarm) for alarm in found])
            count += len(found)
            after = found[-1][0]
        return count


class RemakeAttempts(Remake):
    """From nothing: no alarm is to wait because the log of others cannot be written."""

    table = "attempts"

    def fill(self, unit: UnitOfWork) -> int:
        return 0


def remake_what_is_damaged(execute: Callable[[Work], Any], error: StoreDamaged) -> bool:
    """Looks at the tables, the read model first. Whether one was damaged and is made anew.

    Raises StoreError if the database does not answer, or cannot take another table.
    """
    remade = False
    for remake in (RemakeReservations, RemakeAlarms, RemakeAttempts):
        look = ReadAll(remake.table)
        try:
            execute(look)
        except StoreDamaged:
            count = execute(remake(look.set_aside))
            if count is not None:
                logger.error("%s are damaged: %d were made anew (%s)", remake.table, count, error)
                remade = True
    return remade
