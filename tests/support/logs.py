"""A small log with a bit of everything, and what is asked of it."""

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.verify import VerifyReport, verify
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.clock import ManualClock

FOREIGN_TOPIC = "UPDATE events SET topic = 'os:system' WHERE position = 1"


def fill(application: ReservationApplication, clock: ManualClock) -> None:
    """Three holds, one of them expired, one moved: nine events in all."""
    application.hold("seat-1", 60)
    application.hold("seat-2", 60)
    clock.advance(10_000)
    application.hold("seat-2", 600)
    application.hold("seat-3", 5)
    application.expire("seat-3", clock.now_ms() + 5_000)


def verified(address: Address) -> VerifyReport:
    store = open_store(address)
    try:
        return verify(store, EventMapper())
    finally:
        store.close()


def hexed(data: bytes) -> str:
    """Bytes as they are written in a statement."""
    return f"x'{data.hex()}'"
