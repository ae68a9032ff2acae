"""The writer's thread outlives whatever goes wrong around a transaction."""

import logging
import threading
from typing import Any

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import HoldReservation
from reservation_expiry.infrastructure.errors import StoreBusy, StoreDamaged
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from tests.support.database import have_little_patience


class Fails(Work):
    """Fails its whole transaction."""

    on_tables = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, unit: UnitOfWork) -> None:
        raise self._error


def test_f34_a_caller_that_cannot_be_told_stops_nobody_else(
    application: ReservationApplication, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()

    def fail(result: Any, error: BaseException | None) -> None:
        told.set()
        raise RuntimeError("the event loop has ended")

    application.writer.submit(HoldReservation("reservation/seat-1", 60), fail)
    assert told.wait(5)
    assert application.hold("seat-2", 60).status == "held"
    assert application.get("seat-1").status == "held"
    assert "could not be told" in caplog.text


@pytest.mark.parametrize("name", ["rollback", "close"])
def test_f79_a_transaction_that_cannot_even_be_rolled_back_stops_nobody_else(
    name: str, application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_class = type(application._store.session())
    application.hold("seat-1", 60)

    def fail(session: Any) -> None:
        raise RuntimeError("this was not foreseen")

    with monkeypatch.context() as patched:
        patched.setattr(session_class, "rollback", fail)
        if name == "rollback":
            with pytest.raises(StoreDamaged):
                application.writer.execute(Fails(StoreDamaged("page 7")))
        else:
            close = session_class.close
            patched.setattr(session_class, "close", lambda self: close(self) or fail(self))
            with pytest.raises(StoreBusy):
                application.writer.execute(Fails(StoreBusy("busy")))
    have_little_patience(monkeypatch)
    assert application.hold("seat-2", 60).status == "held"


def test_f80_what_fails_for_ones_sake_does_not_make_the_service_unready(
    application: ReservationApplication, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StoreDamaged), caplog.at_level(logging.ERROR):
        application.writer.execute(Fails(StoreDamaged("page 7")))
    assert application.writer.last_error is None
    with pytest.raises(StoreBusy):
        application.writer.execute(Fails(StoreBusy("busy")))
    assert isinstance(application.writer.last_error, StoreBusy)
    application.hold("seat-1", 60)
    assert application.writer.last_error is None
