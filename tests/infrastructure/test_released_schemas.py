"""A database of every schema that was ever released: migrated, verified, served, its alarms fire.

Each was written by the release that it is named after (`golden/`): a reservation that is held,
one that was held again, and one that has expired; the later ones have an object, too.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.logs import verified
from tests.support.postgres import PostgresServer

GOLDEN = Path(__file__).parent / "golden"
FILES = ["schema-1.sql", "schema-2.sql"]
OF_A_SERVER = "postgres-schema-1.sql"
LATE_MS = 1_900_000_000_000


@pytest.fixture(params=[*FILES, OF_A_SERVER])
def released(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer
) -> Iterator[Address]:
    script = (GOLDEN / request.param).read_text()
    if request.param == OF_A_SERVER:
        postgres.run("CREATE DATABASE released")
        url = postgres.url(database="released")
        postgres.run(script, url=url)
        yield PostgresAddress(f"{url}?options=-csearch_path%3Dapp")
        postgres.run("DROP DATABASE released WITH (FORCE)")
        return
    path = tmp_path / "released.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(script)
    connection.close()
    yield path


def serving(address: Address, work: Callable[[ReservationApplication], None]) -> None:
    clock = ManualClock()
    clock.advance(LATE_MS - clock.now_ms())
    application = ReservationApplication(address, clock)
    application.start(alarms=False)
    try:
        work(application)
    finally:
        application.stop()


def test_every_released_schema_is_migrated_and_served_on(released: Address) -> None:
    before = sql(released, "SELECT count(*) FROM events")
    prepare(released)
    assert sql(released, "SELECT count(*) FROM events") == before, "the log is as it was"
    assert verified(released).found == 0

    def serve(application: ReservationApplication) -> None:
        states = {name: application.get(f"seat-{name}") for name in (1, 2, 3)}
        assert [s and s.status for s in states.values()] == ["held", "held", "expired"]
        while claims := application.alarm_dispatcher.claim():
            application.alarm_dispatcher.settle(claims)
        assert {application.get(f"seat-{n}").status for n in (1, 2, 3)} == {"expired"}
        client = create_app(application).test_client()
        body = {"ttlSeconds": 60, "lines": [{"item": "seat"}]}
        assert client.put("/holds/cart-1", json=body).status_code == 201
        assert client.get("/items/seat").json["held"] == 1

    serving(released, serve)
    check_invariants(released)
    assert verified(released).found == 0
