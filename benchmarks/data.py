"""Databases with many holds in them, made by the product's own unit of work.

Only the clock and the size of the transactions differ from what a server does.
"""

from collections.abc import Callable
from pathlib import Path

from infrastructure.commands import HoldReservation
from infrastructure.event_mapper import EventMapper
from infrastructure.sqlite.database import Database
from infrastructure.sqlite.session import SqliteSession
from infrastructure.startup import prepare
from infrastructure.unit_of_work import UnitOfWork

HOLDS_PER_COMMIT = 1_000
SPREAD = 7_919  # a prime: names come in no order, as names do
TTL_SECONDS = 3_600


def fill(
    folder: Path, holds: int, expires_at_ms: Callable[[int], int], tag: str = "h", first: int = 1
) -> Path:
    """Holds `{tag}-{first}` and so on in `folder`'s database.

    The i-th of them (from 0) ends at `expires_at_ms(i)`.
    """
    path = folder / "reservations.db"
    prepare(path)
    database = Database(path)
    session, mapper = SqliteSession(database), EventMapper()
    for start in range(0, holds, HOLDS_PER_COMMIT):
        numbers = range(start, min(start + HOLDS_PER_COMMIT, holds))
        session.begin()
        unit = UnitOfWork(session, mapper, 0)
        unit.load(_id(tag, first, i, holds) for i in numbers)
        for i in numbers:
            unit.now_ms = expires_at_ms(i) - TTL_SECONDS * 1000
            HoldReservation(_id(tag, first, i, holds), TTL_SECONDS).run(unit)
        unit.flush()
        session.commit()
    session.close()
    database.close()
    return path


def _id(tag: str, first: int, i: int, holds: int) -> str:
    number = i * SPREAD % holds if holds % SPREAD else i
    return f"reservation/{tag}-{first + number}"
