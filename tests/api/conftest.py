"""Fixtures of tests on what stands in front."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.startup import prepare


@pytest.fixture
def client(application: ReservationApplication) -> FlaskClient:
    return create_app(application).test_client()


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests that write nothing."""
    path = tmp_path_factory.mktemp("empty") / "reservations.db"
    prepare(path)
    return path


@pytest.fixture(scope="module")
def idle_client(empty_database: Path) -> Iterator[FlaskClient]:
    """Nothing is held and nothing can be: the application was never started."""
    application = ReservationApplication(empty_database)
    yield create_app(application).test_client()
    application.stop()
