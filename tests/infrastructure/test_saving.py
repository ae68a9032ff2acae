"""Events that are saved by the eventsourcing library's interface: one door to the log."""

from typing import Any

import pytest

from reservation_expiry.domain.durable_object import AlarmSet
from reservation_expiry.domain.events import AlarmScheduled, Expired, Held
from reservation_expiry.domain.ids import ID_PREFIX
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import EventRefused, VersionConflict
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.verify import verify
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store

SEAT = f"{ID_PREFIX}seat-1"
AT = 1_800_000_000_000
HELD = Held(SEAT, 1, created_at_ms=AT, expires_at_ms=AT + 5_000)
ALARM = AlarmScheduled(SEAT, 2, scheduled_time_ms=AT + 5_000)
EXPIRED = Expired(SEAT, 3, expired_at_ms=AT + 5_000)

REFUSED: dict[str, tuple[list[Any], str]] = {
    "an object's alarm": ([AlarmSet("object/Tea/pot", 1, AT)], "its owner alone"),
    "a hold without an alarm": ([HELD], "without an alarm"),
    "an alarm for another time": (
        [HELD, AlarmScheduled(SEAT, 2, scheduled_time_ms=AT + 5_001)],
        "AlarmScheduled for",
    ),
    "an end before it is due": (
        [HELD, ALARM, Expired(SEAT, 3, expired_at_ms=AT + 4_999)],
        "Expired at",
    ),
    "an end of nothing": ([Expired(SEAT, 1, expired_at_ms=AT)], "where nothing is held"),
}


def differences(address: Address) -> list[Any]:
    store = open_store(address)
    try:
        return verify(store, EventMapper()).differences
    finally:
        store.close()


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_leave_something_that_never_ends_is_refused(
    application: ReservationApplication, address: Address, kind: str
) -> None:
    events, sentence = REFUSED[kind]
    with pytest.raises(EventRefused, match=sentence):
        application.save(*events)
    assert application.queries.head().position == 0
    assert differences(address) == []


def test_what_follows_from_the_rules_is_projected(
    application: ReservationApplication, address: Address
) -> None:
    application.save(HELD, ALARM)
    found = application.get("seat-1")
    assert found is not None
    assert (found.status, found.alarm_at_ms) == ("held", AT + 5_000)
    assert differences(address) == []
    application.save(EXPIRED)
    assert application.get("seat-1").status == "expired"
    assert differences(address) == []


def test_a_save_on_an_older_version_is_a_conflict(application: ReservationApplication) -> None:
    application.save(HELD, ALARM)
    with pytest.raises(VersionConflict):
        application.save(HELD, ALARM)
