"""Holds with terms that are ended from all sides at once, on threads: each ends once."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import check_invariants

ENDINGS = ("reservation.Confirmed", "reservation.Released", "reservation.Expired")
THREADS = 8


def run_alarms_until(application: ReservationApplication, is_over: Callable[[], bool]) -> None:
    while not is_over():
        if claims := application.alarm_dispatcher.claim():
            application.alarm_dispatcher.settle(claims)


def test_f11_a_thousand_holds_are_confirmed_just_before_their_alarm_runs_and_end_once(
    application: ReservationApplication, clock: ManualClock, address: Address
) -> None:
    app = create_app(application)
    client = app.test_client()
    names = [f"cart-{number}" for number in range(1_000)]
    due_ms = clock.now_ms() + 5_000
    for name in names:
        body = {"ttlSeconds": 5, "lines": [{"item": name}]}
        assert client.put(f"/holds/{name}", json=body).json["expiresAt"] == due_ms
    clock.advance(4_999)
    confirmed, over = Counter(), threading.Event()

    def confirm(name: str) -> int:
        answer = app.test_client().post(f"/holds/{name}/confirm", json={})
        confirmed[name] += answer.status_code == 200 and answer.json["changed"]
        if len(confirmed) == len(names) // 2:
            clock.advance(1)  # with half of them still to be asked for
        return answer.status_code

    alarms = threading.Thread(target=run_alarms_until, args=(application, over.is_set))
    alarms.start()
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = Counter(pool.map(confirm, [*names, *names[::-1]]))
    over.set()
    alarms.join()
    run_alarms_until(application, lambda: sql(address, "SELECT count(*) FROM alarms") == [(0,)])
    rows = sql(address, "SELECT originator_id, topic FROM events")
    ended = Counter(i for i, topic in rows if topic in ENDINGS)
    assert set(ended.values()) == {1}
    assert len(ended) == len(names)
    assert statuses.keys() == {200, 409}
    assert max(confirmed.values()) == 1, "to confirm again changes nothing"
    check_invariants(address)


def test_f15_release_alarm_and_another_put_of_one_name_at_once_end_each_hold_once(
    application: ReservationApplication, clock: ManualClock, address: Address
) -> None:
    app, over = create_app(application), threading.Event()

    def client_of(what: str) -> Callable[[int], int]:
        def ask(_: int) -> int:
            client = app.test_client()
            if what == "put":
                body = {"ttlSeconds": 5, "lines": [{"item": "seat"}]}
                return client.put("/holds/cart-1", json=body).status_code
            if what == "tick":
                clock.advance(1_000)
                return 200
            return client.post(f"/holds/cart-1/{what}", json={}).status_code

        return ask

    alarms = threading.Thread(target=run_alarms_until, args=(application, over.is_set))
    alarms.start()
    with ThreadPoolExecutor(THREADS) as pool:
        asked = [
            pool.submit(client_of(what), number)
            for number in range(500)
            for what in ("put", "release", "tick")
        ]
        statuses = {future.result() for future in asked}
    over.set()
    alarms.join()
    assert statuses <= {200, 201, 404, 409}
    check_invariants(address)
