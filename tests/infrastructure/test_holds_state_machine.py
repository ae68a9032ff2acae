"""Any history of holds with terms: the rules hold, and no item is ever taken past its capacity.

A walk of random commands by three buyers on a few names and items, with steps of the clock to
and around deadlines, alarms that run or do not, restarts and lost rows. What must be true of the
database is checked by `check_invariants`, with SQL of its own. `STEPS` may be set for a longer
walk: HOLDS_STEPS=20000.
"""

import os
import random
from io import BytesIO
from typing import Any

from flask.testing import FlaskClient

from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.logs import verified

STEPS = int(os.environ.get("HOLDS_STEPS", "400"))
CHECKED_EVERY = 100
NAMES = [f"cart-{number}" for number in range(4)]
ITEMS = ["seat-1", "seat-2", "floor"]
BUYERS = [None, "a-token-of-a-buyer-1", "a-token-of-a-buyer-2"]
EXPECTED = {200, 201, 403, 404, 409, 412, 422}


class Walk:
    def __init__(self, address: Address, seed: int) -> None:
        self.address = address
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.statuses: set[int] = set()
        self.keys = 0
        self.serve()

    def serve(self) -> None:
        self.application = ReservationApplication(self.address, self.clock, AlarmLog(BytesIO()))
        self.application.start(alarms=False)
        self.client: FlaskClient = create_app(self.application).test_client()

    def restart(self) -> None:
        self.application.stop()
        self.serve()

    def step(self) -> None:
        kinds = [self.put] * 6 + [self.act] * 8 + [self.tick] * 4 + [self.alarms] * 2
        self.random.choice([*kinds, self.capacity, self.plain, self.lose, self.restart])()

    def ask(self, method: str, path: str, body: dict[str, Any]) -> None:
        headers = {}
        if buyer := self.random.choice(BUYERS):
            headers["Hold-Token"] = buyer
        if self.random.random() < 0.3:
            self.keys += self.random.random() < 0.8  # and else the last one again
            headers["Idempotency-Key"] = f"key-{self.keys}"
        if self.random.random() < 0.1:
            headers["If-Match"] = f'"{self.random.randrange(1, 9)}"'
        answer = self.client.open(path, method=method, json=body, headers=headers)
        self.statuses.add(answer.status_code)
        assert answer.status_code in EXPECTED, answer.data

    def put(self) -> None:
        lines = [
            {"item": self.random.choice(ITEMS), "units": self.random.randrange(1, 3)}
            for _ in range(self.random.randrange(3))
        ]
        body = {"ttlSeconds": self.random.choice([1, 5, 60]), "lines": lines}
        self.ask("PUT", f"/holds/{self.random.choice(NAMES)}", body)

    def act(self) -> None:
        word = self.random.choice(["extend", "confirm", "release", "cancel"])
        body = {"ttlSeconds": self.random.choice([1, 5, 90_000])} if word == "extend" else {}
        self.ask("POST", f"/holds/{self.random.choice(NAMES)}/{word}", body)

    def plain(self) -> None:
        """The contract's route, on the same names."""
        name = self.random.choice(NAMES)
        answer = self.client.post(f"/reservations/{name}", json={"ttlSeconds": 5})
        assert answer.status_code in (201, 409)

    def capacity(self) -> None:
        body = {"capacity": self.random.randrange(5)}
        self.ask("PUT", f"/items/{self.random.choice(ITEMS)}", body)

    def tick(self) -> None:
        self.clock.advance(self.random.choice([1, 999, 1_000, 1_001, 5_000, 60_000]))

    def alarms(self) -> None:
        while claims := self.application.alarm_dispatcher.claim():
            self.application.alarm_dispatcher.settle(claims)

    def lose(self) -> None:
        """Rows that follow from the log, which it then tells again."""
        table = self.random.choice(["items", "lines", "reservations", "alarms"])
        sql(self.address, f"DELETE FROM {table}")
        rebuild(self.application.writer.execute, self.application.mapper)


def test_in_any_history_of_holds_no_item_is_taken_past_its_capacity(new_address) -> None:
    address = new_address()
    prepare(address)
    walk = Walk(address, random.randrange(2**32))
    try:
        for number in range(STEPS):
            walk.step()
            if number % CHECKED_EVERY == 0:
                check_invariants(address)
        walk.clock.advance(100_000_000)
        walk.alarms()
        check_invariants(address)
    finally:
        walk.application.stop()
    assert walk.statuses >= {200, 201, 403, 409}
    assert verified(address).found == 0
