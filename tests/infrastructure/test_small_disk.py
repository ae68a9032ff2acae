"""F88: a small disk that was full is of use again as soon as something was freed on it."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreError, StoreFull
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.sqlite import database
from reservation_expiry.infrastructure.stores.sqlite.database import Database
from tests.support.invariants import check_invariants
from tests.support.server import wait_for
from tests.support.unprivileged import small_disk

MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """12 MiB, of which others have eight, and may give back three of them."""
    with small_disk(tmp_path, 12) as folder:
        (folder / "filler").write_bytes(b"x" * 3 * MIB)
        (folder / "other").write_bytes(b"x" * 5 * MIB)
        yield folder


class Holds:
    def __init__(self, application: ReservationApplication) -> None:
        self._application = application
        self._numbers = count()

    def try_many(self, number: int) -> Counter[str]:
        """How that many new holds went."""
        with ThreadPoolExecutor(20) as threads:
            return Counter(threads.map(self._try, [next(self._numbers) for _ in range(number)]))

    def _try(self, number: int) -> str:
        try:
            self._application.hold(f"seat-{number}", 600)
        except StoreError as error:
            return type(error).__name__
        return "held"


@pytest.mark.real_time
def test_f88_a_small_disk_that_was_full_recovers_when_a_little_is_freed(disk: Path) -> None:
    path = disk / "reservations.db"
    prepare(path)
    application = ReservationApplication(path)
    application.start(alarms=False)
    holds = Holds(application)
    held = 0
    while (went := holds.try_many(500)).total() == went["held"]:
        held += 500
    assert set(went) <= {"held", "StoreFull"}
    assert held > 4_000, "the WAL leaves most of the disk to what is in the log"
    time.sleep(1.0)  # nothing becomes of the little that is left
    assert holds.try_many(100)["held"] < 50

    (disk / "filler").unlink()
    wait_for(lambda: holds.try_many(20)["held"] == 20, 5)
    for _ in range(4):
        assert holds.try_many(500) == {"held": 500}
    application.stop()

    prepare(path)
    application = ReservationApplication(path)
    application.start(alarms=False)
    application.hold("after-restart", 600)
    application.stop()
    check_invariants(path)


@pytest.mark.real_time
def test_f88_a_wal_of_before_that_fills_the_disk_is_folded_in_when_there_is_room(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a release without a bound has left it."""
    monkeypatch.setattr(database, "WAL_MIN_PAGES", 4_000)
    path = disk / "reservations.db"
    prepare(path)
    application = ReservationApplication(path)
    application.start(alarms=False)
    holds = Holds(application)
    while holds.try_many(500)["held"] == 500:
        pass
    assert path.with_name("reservations.db-wal").stat().st_size > 3 * MIB
    (disk / "filler").unlink()
    monkeypatch.undo()
    wait_for(lambda: holds.try_many(20)["held"] == 20, 5)
    assert holds.try_many(500) == {"held": 500}
    application.stop()


def test_f88_the_wal_is_as_large_as_ever_where_there_is_room(tmp_path: Path) -> None:
    connection = Database(tmp_path / "x.db").connect()
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (4_000,)
    assert connection.execute("PRAGMA journal_size_limit").fetchone() == (64 * MIB,)
    connection.close()


def test_f88_it_is_a_sixteenth_of_what_is_free_on_a_small_disk(disk: Path) -> None:
    (disk / "other").unlink()
    connection = Database(disk / "x.db").connect()
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (9 * MIB // 16 // 4096,)
    connection.close()


def test_f88_what_is_asked_while_the_disk_is_full_is_refused_at_once(disk: Path) -> None:
    path = disk / "reservations.db"
    prepare(path)
    application = ReservationApplication(path)
    application.start(alarms=False)
    holds = Holds(application)
    while holds.try_many(500)["held"] == 500:
        pass
    holds.try_many(100)
    began = time.monotonic()
    for number in range(20):
        with pytest.raises(StoreFull):
            application.hold(f"other-{number}", 600)
    assert time.monotonic() - began < 2
    application.stop()
