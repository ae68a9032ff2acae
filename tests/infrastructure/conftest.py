"""Fixtures of tests on what is stored."""

import pytest

from infrastructure.address import Address
from infrastructure.application import ReservationApplication
from tests.support import logs
from tests.support.clock import ManualClock


@pytest.fixture
def log(application: ReservationApplication, clock: ManualClock, address: Address) -> Address:
    """A database with the log of `tests/support/logs.py`, that nobody has open."""
    logs.fill(application, clock)
    application.stop()
    return address
