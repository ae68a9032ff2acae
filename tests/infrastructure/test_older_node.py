"""A node of an older release that meets holds with terms parks their alarms, and loses nothing."""

from dataclasses import replace

import msgspec

from reservation_expiry.api.http import create_app
from reservation_expiry.domain.alarm import MAX_ATTEMPTS
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.event_mapper import EVENT_TYPES, EventMapper
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import check_invariants

INTEGERS = msgspec.json.Decoder(dict[str, int]).decode
KNOWN_THEN = tuple(
    replace(t, decode=INTEGERS) if t.topic == "reservation.Held" else t
    for t in EVENT_TYPES
    if t.topic in ("reservation.Held", "reservation.AlarmScheduled", "reservation.Expired")
)
AN_HOUR_MS = 3_600_000


def run_alarms(application: ReservationApplication) -> None:
    while claims := application.alarm_dispatcher.claim():
        application.alarm_dispatcher.settle(claims)


def test_an_older_node_parks_the_alarms_of_holds_with_terms_and_a_newer_one_ends_them(
    application: ReservationApplication, clock: ManualClock, address: Address
) -> None:
    client = create_app(application).test_client()
    body = {"ttlSeconds": 5, "lines": [{"item": "seat"}]}
    assert client.put("/holds/cart-1", json=body).status_code == 201
    application.hold("plain-1", 5)
    before = application.queries.head()

    older = ReservationApplication(address, clock)
    older.mapper = older.writer._mapper = EventMapper(KNOWN_THEN)
    older.start(alarms=False)
    try:
        for _ in range(MAX_ATTEMPTS + 1):
            clock.advance(AN_HOUR_MS)
            run_alarms(older)
        assert older.get("plain-1").status == "expired", "what it knows it ends"
    finally:
        older.stop()
    assert sql(address, "SELECT id FROM alarms WHERE next_run_time IS NULL") == [
        ("reservation/cart-1",)
    ]
    assert application.queries.head().position == before.position + 1
    assert client.get("/items/seat").json["held"] == 1

    assert application.redrive("cart-1")
    run_alarms(application)
    assert client.get("/holds/cart-1").json["status"] == "expired"
    assert client.get("/items/seat").json["free"] == 1
    check_invariants(address)
