"""Fixtures of tests on what is stored."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from tests.support import logs
from tests.support.clock import ManualClock
from tests.support.postgres import PostgresServer
from tests.support.writers import Bench

_numbers = count(1)


@pytest.fixture
def log(application: ReservationApplication, clock: ManualClock, address: Address) -> Address:
    """A database with the log of `tests/support/logs.py`, that nobody has open."""
    logs.fill(application, clock)
    application.stop()
    return address


@pytest.fixture
def make_database(postgres: PostgresServer) -> Iterator[Callable[..., PostgresAddress]]:
    """A database of its own, and a role that owns a schema in it: `make_database()`."""
    made: list[str] = []

    def make(server: PostgresServer = postgres) -> PostgresAddress:
        name = f"settings_{next(_numbers)}"
        if server is postgres:
            made.append(name)
        server.run(f"CREATE DATABASE {name}", f"CREATE ROLE {name} LOGIN")
        inside = server.url(database=name)
        server.run(f"CREATE SCHEMA {name} AUTHORIZATION {name}", url=inside)
        return PostgresAddress(server.url(user=name, database=name))

    yield make
    for name in made:
        postgres.run(f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {name}")


@pytest.fixture
def bench(database_path: Path) -> Iterator[Bench]:
    bench = Bench(database_path)
    yield bench
    bench.close()
