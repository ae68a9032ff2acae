"""Fixtures that any test may ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infrastructure.application import ReservationApplication
from infrastructure.startup import prepare
from tests.support.clock import ManualClock
from tests.support.server import Server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database_path(tmp_path: Path) -> Path:
    """A prepared, empty database."""
    path = tmp_path / "reservations.db"
    prepare(path)
    return path


@pytest.fixture
def application(database_path: Path, clock: ManualClock) -> Iterator[ReservationApplication]:
    """An application on a manual clock, its alarm clock not running: a test runs alarms
    itself, with `application.alarm_handler`."""
    application = ReservationApplication(database_path, clock)
    application.start(alarms=False)
    yield application
    application.stop()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[type[Server]]:
    """Makes servers in the test's own folder and leaves none running."""
    made: list[Server] = []

    def make(*options: str, **keywords: object) -> Server:
        server = Server(tmp_path, *options, **keywords)
        made.append(server)
        return server

    yield make
    for server in made:
        server.ensure_gone()
