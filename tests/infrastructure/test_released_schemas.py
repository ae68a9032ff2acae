"""A database of every schema that was ever released: migrated, verified, served, its alarms fire.

Each was written by the release that it is named after (`golden/`): a reservation that is held,
one that was held again, and one that has expired; the later ones have an object, the latest
holds with terms, too.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.postgres import schema as postgres_schema
from reservation_expiry.infrastructure.stores.sqlite import schema as sqlite_schema
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.logs import verified
from tests.support.postgres import PostgresServer

GOLDEN = Path(__file__).parent / "golden"
FILES = ["schema-1.sql", "schema-2.sql", "schema-3.sql"]
OF_A_SERVER = ["postgres-schema-1.sql", "postgres-schema-2.sql"]
LATE_MS = 1_900_000_000_000


@pytest.fixture(params=[*FILES, *OF_A_SERVER])
def released(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer
) -> Iterator[Address]:
    script = (GOLDEN / request.param).read_text()
    if request.param in OF_A_SERVER:
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


def states(address: Address) -> list[tuple]:
    """What every schema says of reservations."""
    columns = "name, version, status, created_at_ms, expires_at_ms, expired_at_ms, alarm_at_ms"
    return sql(address, f"SELECT {columns}, expiration_count FROM reservations ORDER BY name")


def late_clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(LATE_MS - clock.now_ms())
    return clock


def serving(
    address: Address,
    work: Callable[[ReservationApplication], object],
    clock: ManualClock | None = None,
) -> None:
    """Work on an application that is started anew, and stopped; late, if no clock is given."""
    application = ReservationApplication(address, clock or late_clock())
    application.start(alarms=False)
    try:
        work(application)
    finally:
        application.stop()


def test_every_released_schema_is_migrated_and_served_on(released: Address) -> None:
    before = sql(released, "SELECT * FROM events ORDER BY position")
    prepare(released)
    assert sql(released, "SELECT * FROM events ORDER BY position") == before, "as it was"
    assert verified(released).found == 0

    def serve(application: ReservationApplication) -> None:
        found = {name: application.get(f"seat-{name}") for name in (1, 2, 3)}
        assert [state and state.status for state in found.values()] == ["held", "held", "expired"]
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


def test_an_upgrade_keeps_what_has_expired_and_what_is_held(released: Address) -> None:
    before = states(released)
    assert {status for _, _, status, *_ in before} == {"held", "expired"}
    prepare(released)
    assert states(released) == before
    serving(released, lambda application: None)
    assert states(released) == before, "and a start changes nothing but the schema"


def test_a_restart_of_unchanged_code_keeps_what_has_expired_and_what_is_held(
    address: Address,
) -> None:
    clock = ManualClock()

    def hold_both(application: ReservationApplication) -> None:
        application.hold("seat-1", 5)
        application.hold("seat-2", 3_600)
        clock.advance(5_000)
        application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())

    def settle_what_is_due(application: ReservationApplication) -> None:
        assert application.alarm_dispatcher.claim() == []

    serving(address, hold_both, clock)
    before, log = states(address), sql(address, "SELECT * FROM events ORDER BY position")
    assert [row[:3] for row in before] == [("seat-1", 3, "expired"), ("seat-2", 2, "held")]
    prepare(address)
    serving(address, settle_what_is_due, clock)
    assert (states(address), sql(address, "SELECT * FROM events ORDER BY position")) == (
        before,
        log,
    )


def test_every_schema_before_the_newest_has_a_database_here() -> None:
    assert len(FILES) >= len(sqlite_schema.MIGRATIONS) - 1
    assert len(OF_A_SERVER) >= len(postgres_schema.MIGRATIONS) - 1
