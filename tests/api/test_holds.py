"""Holds with terms over HTTP, on both stores: faults F11 to F16 and units of items."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask.testing import FlaskClient

from reservation_expiry.api.holds import ROUTES
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.replay.verify import verify
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.clock import ManualClock
from tests.support.database import sql

TOKEN = {"Hold-Token": "a-token-of-a-buyer-1"}
OTHER = {"Hold-Token": "a-token-of-another-2"}


def put(client: FlaskClient, name: str, headers: Any = TOKEN, ttl: int = 60, **lines: int) -> Any:
    body = {"ttlSeconds": ttl, "lines": [{"item": i, "units": n} for i, n in lines.items()]}
    return client.put(f"/holds/{name}", json=body, headers=headers)


def act(client: FlaskClient, name: str, what: str, headers: Any = TOKEN, **body: Any) -> Any:
    return client.post(f"/holds/{name}/{what}", json=body, headers=headers)


def item(client: FlaskClient, name: str) -> tuple[int, int, int]:
    found = client.get(f"/items/{name}").json
    return found["held"], found["confirmed"], found["free"]


def run_alarms(application: ReservationApplication) -> None:
    while claims := application.alarm_dispatcher.claim():
        application.alarm_dispatcher.settle(claims)


def events(client: FlaskClient, name: str) -> list[str]:
    return [e["event"] for e in client.get(f"/reservations/{name}/events").json["events"]]


def test_a_hold_is_put_confirmed_and_cancelled_and_its_units_follow(client: FlaskClient) -> None:
    assert client.put("/items/floor", json={"capacity": 10}).status_code == 200
    held = put(client, "cart-1", floor=2, seat=1)
    assert held.status_code == 201
    assert held.headers["ETag"] == '"2"'
    assert held.json["lines"] == [{"item": "floor", "units": 2}, {"item": "seat", "units": 1}]
    assert (item(client, "floor"), item(client, "seat")) == ((2, 0, 8), (1, 0, 0))
    assert act(client, "cart-1", "confirm").json["status"] == "confirmed"
    assert item(client, "floor") == (0, 2, 8)
    assert act(client, "cart-1", "cancel").json["status"] == "cancelled"
    assert (item(client, "floor"), item(client, "seat")) == ((0, 0, 10), (0, 0, 1))
    assert act(client, "cart-1", "cancel").json["changed"] is False
    assert events(client, "cart-1") == ["Held", "AlarmScheduled", "Confirmed", "Cancelled"]


def test_a_cart_that_is_short_by_one_unit_takes_nothing(client: FlaskClient) -> None:
    client.put("/items/floor", json={"capacity": 2})
    refused = put(client, "cart-1", seat=1, floor=3)
    assert (refused.status_code, refused.json["code"]) == (409, "not-available")
    assert refused.json["items"] == [{"item": "floor", "wanted": 3, "free": 2}]
    assert (item(client, "seat"), item(client, "floor")) == ((0, 0, 1), (0, 0, 2))


def test_overdue_units_are_free_before_their_alarm_has_run(
    client: FlaskClient, clock: ManualClock
) -> None:
    put(client, "cart-1", ttl=5, seat=1)
    clock.advance(5_000)
    assert put(client, "cart-2", OTHER, seat=1).status_code == 201
    assert events(client, "cart-1") == ["Held", "AlarmScheduled", "Expired"]
    assert item(client, "seat") == (1, 0, 0)


def test_an_alarm_gives_the_units_back(
    client: FlaskClient, application: ReservationApplication, clock: ManualClock
) -> None:
    put(client, "cart-1", ttl=5, seat=1)
    clock.advance(5_000)
    run_alarms(application)
    assert item(client, "seat") == (0, 0, 1)


@pytest.mark.parametrize("late_ms", [-1, 0, 1])
def test_f11_f12_f14_the_clock_decides_however_late_the_alarm_is(
    client: FlaskClient, application: ReservationApplication, clock: ManualClock, late_ms: int
) -> None:
    for act_ in ("confirm", "release", "extend"):
        put(client, f"cart-{act_}", ttl=5)
    clock.advance(5_000 + late_ms)
    for act_ in ("confirm", "release", "extend"):
        body = {"ttlSeconds": 9} if act_ == "extend" else {}
        answer = act(client, f"cart-{act_}", act_, **body)
        assert answer.status_code == (200 if late_ms < 0 else 409)
        assert late_ms < 0 or answer.json["code"] == "already-expired"
        endings = {"Expired", "Confirmed", "Released"}
        ended = [e for e in events(client, f"cart-{act_}") if e in endings]
        assert len(ended) == (0 if act_ == "extend" and late_ms < 0 else 1)
    before = application.queries.head()
    run_alarms(application)
    assert application.queries.head() == before


def test_f13_another_owner_changes_nothing_and_the_same_may_put_again(client: FlaskClient) -> None:
    put(client, "cart-1", seat=1)
    for what in ("confirm", "release", "extend", "cancel"):
        body = {"ttlSeconds": 9} if what == "extend" else {}
        for headers in (OTHER, {}):
            answer = act(client, "cart-1", what, headers, **body)
            assert (answer.status_code, answer.json["code"]) == (403, "not-yours")
    assert put(client, "cart-1", OTHER, seat=1).json["code"] == "already-held"
    assert put(client, "cart-1", seat=1).status_code == 200
    assert item(client, "seat") == (1, 0, 0)


def test_f14_a_thousand_extensions_leave_one_alarm_and_the_next_is_refused(
    client: FlaskClient, application: ReservationApplication
) -> None:
    put(client, "cart-1")

    def extend(_: int) -> int:
        mine = client.application.test_client()
        return act(mine, "cart-1", "extend", ttlSeconds=60).status_code

    with ThreadPoolExecutor(32) as clients:  # which share their commits
        assert set(clients.map(extend, range(1_000))) == {200}
    answer = act(client, "cart-1", "extend", ttlSeconds=60)
    assert (answer.status_code, answer.json["code"]) == (409, "too-many-extensions")
    assert len(application.queries.alarms(limit=9)) == 1
    assert act(client, "cart-1", "confirm").status_code == 200


def test_f14_nothing_extends_beyond_until_nor_shortens_unasked(client: FlaskClient) -> None:
    until = put(client, "cart-1").json["until"]
    assert act(client, "cart-1", "extend", expiresAt=until).status_code == 200
    beyond = act(client, "cart-1", "extend", expiresAt=until + 1)
    assert (beyond.status_code, beyond.json["code"]) == (422, "beyond-until")
    assert act(client, "cart-1", "extend", ttlSeconds=60).json["code"] == "would-shorten"
    assert act(client, "cart-1", "extend", ttlSeconds=60, shorten=True).status_code == 200


def test_f16_one_key_has_one_answer(client: FlaskClient, clock: ManualClock) -> None:
    keyed = {**TOKEN, "Idempotency-Key": "k1"}
    first = put(client, "cart-1", keyed, seat=1)
    clock.advance(1_000)
    again = put(client, "cart-1", keyed, seat=1)
    assert (again.status_code, again.data, again.headers["ETag"]) == (201, first.data, '"2"')
    other = put(client, "cart-1", keyed, ttl=61, seat=1)
    assert (other.status_code, other.json["code"]) == (422, "idempotency-key-reused")
    refused = put(client, "cart-2", {**OTHER, "Idempotency-Key": "k2"}, seat=1)
    act(client, "cart-1", "release")
    assert put(client, "cart-2", {**OTHER, "Idempotency-Key": "k2"}, seat=1).data == refused.data


def test_the_contracts_routes_leave_a_guarded_hold_alone(client: FlaskClient) -> None:
    put(client, "cart-1", seat=1)
    held = client.post("/reservations/cart-1", json={"ttlSeconds": 5})
    assert (held.status_code, held.json["code"]) == (409, "already-held")
    replay = client.post("/reservations/cart-1/replay-alarm", json={"now": 2**53 - 1})
    assert (replay.status_code, replay.json["code"]) == (409, "guarded")
    act(client, "cart-1", "confirm")
    held = client.post("/reservations/cart-1", json={"ttlSeconds": 5})
    assert (held.status_code, held.json["code"]) == (409, "already-confirmed")


def test_no_answer_and_no_event_shows_a_token_or_its_hash(client: FlaskClient) -> None:
    put(client, "cart-1", seat=1)
    for path in ("/holds/cart-1", "/events", "/reservations/cart-1", "/reservations"):
        text = client.get(path).text
        assert "secret" not in text
        assert TOKEN["Hold-Token"] not in text


def test_if_match_names_the_version(client: FlaskClient) -> None:
    put(client, "cart-1")
    stale = act(client, "cart-1", "confirm", {**TOKEN, "If-Match": '"1"'})
    assert (stale.status_code, stale.json["code"]) == (412, "version-mismatch")
    assert act(client, "cart-1", "confirm", {**TOKEN, "If-Match": '"2"'}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"ttlSeconds":0}', b'{"ttlSeconds":true}', b'{"ttlSeconds":5,"x":1}',
     b'{"ttlSeconds":5,"lines":[{"item":"a b"}]}',
     b'{"ttlSeconds":5,"lines":[{"item":"a","units":0}]}'],
)  # fmt: skip
def test_a_bad_body_is_told_what_is_allowed(client: FlaskClient, body: bytes) -> None:
    answer = client.put("/holds/cart-1", data=body)
    assert (answer.status_code, answer.json["code"]) == (400, "invalid-body")


def test_every_route_of_the_table_is_served(client: FlaskClient) -> None:
    served = {(m, r.rule) for r in client.application.url_map.iter_rules() for m in r.methods or ()}
    assert {(route.method, route.path) for route in ROUTES} <= served


def test_deleted_counters_of_holds_are_named_by_verify_and_mended_by_rebuild(
    client: FlaskClient, application: ReservationApplication, address: Address
) -> None:
    client.put("/items/floor", json={"capacity": 10})
    put(client, "cart-1", seat=1, floor=2)
    put(client, "cart-2", floor=3)
    act(client, "cart-2", "confirm")
    store = open_store(address)
    assert verify(store, application.mapper).differences == []
    sql(address, "DELETE FROM items")
    sql(address, "DELETE FROM lines")
    named = {d.originator_id for d in verify(store, application.mapper).differences}
    assert named == {"item/floor", "item/seat"}
    rebuild(application.writer.execute, application.mapper)
    assert verify(store, application.mapper).differences == []
    assert (item(client, "floor"), item(client, "seat")) == ((2, 3, 5), (1, 0, 0))
    store.close()


def test_ten_units_asked_two_hundred_times_at_once_for_three_are_held_three_times(
    client: FlaskClient,
) -> None:
    client.put("/items/floor", json={"capacity": 10})

    def ask(number: int) -> int:
        with client.application.test_client() as own:
            return put(own, f"cart-{number}", floor=3).status_code

    with ThreadPoolExecutor(24) as threads:
        answers = Counter(threads.map(ask, range(200)))
    assert answers == {201: 3, 409: 197}
    assert item(client, "floor") == (9, 0, 1)
