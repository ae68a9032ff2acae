"""Databases with many holds in them, made by the product's own unit of work.

Only the clock and the size of the transactions differ from what a server does.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from reservation_expiry.infrastructure.commands import HoldReservation
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork

HOLDS_PER_COMMIT = 1_000
SPREAD = 7_919  # a prime: names come in no order, as names do
TTL_SECONDS = 3_600


def fill(
    where: Address, holds: int, expires_at_ms: Callable[[int], int], tag: str = "h", first: int = 1
) -> Address:
    """Holds `{tag}-{first}` and so on in the database there, or in a folder's. Its address.

    The i-th of them (from 0) ends at `expires_at_ms(i)`.
    """
    address = database_of(where)
    with _unit_of_work(address) as transaction:
        for start in range(0, holds, HOLDS_PER_COMMIT):
            numbers = range(start, min(start + HOLDS_PER_COMMIT, holds))
            with transaction() as unit:
                unit.load(_id(tag, first, i, holds) for i in numbers)
                for i in numbers:
                    unit.now_ms = expires_at_ms(i) - TTL_SECONDS * 1000
                    HoldReservation(_id(tag, first, i, holds), TTL_SECONDS).run(unit)
    return address


def fill_log(folder: Path, events: int, names: int, now_ms: int) -> Path:
    """A log of so many events, of holds that were taken over and over.

    `h-1` to `h-{names}` are open, the last ones until TTL_SECONDS after `now_ms`.
    """
    rounds = max(events // (2 * names), 1)  # a hold is two events
    ids = [f"reservation/h-{number}" for number in range(1, names + 1)]
    path = database_of(folder)
    with _unit_of_work(path) as transaction:
        for ago in range(rounds - 1, -1, -1):
            with transaction() as unit:
                unit.load(ids)
                unit.now_ms = now_ms - ago * 1_000
                for reservation_id in ids:
                    HoldReservation(reservation_id, TTL_SECONDS).run(unit)
    return path


def database_of(where: Address) -> Address:
    """A folder's database, or what is one already."""
    return where / "reservations.db" if isinstance(where, Path) and where.is_dir() else where


@contextmanager
def _unit_of_work(address: Address) -> Iterator[Callable[[], AbstractContextManager[UnitOfWork]]]:
    """Lends what begins a transaction; each commits at the end of its block."""
    prepare(address)
    store = open_store(address)
    session, mapper = store.session(), EventMapper()

    @contextmanager
    def transaction() -> Iterator[UnitOfWork]:
        session.begin()
        unit = UnitOfWork(session, mapper, 0)
        yield unit
        unit.flush()
        session.commit()

    yield transaction
    session.close()
    store.close()


def _id(tag: str, first: int, i: int, holds: int) -> str:
    number = i * SPREAD % holds if holds % SPREAD else i
    return f"reservation/{tag}-{first + number}"
