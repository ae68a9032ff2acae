"""A log goes from one database to another, of either kind, and is the same there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import DatabaseRefused, ImportRefused
from reservation_expiry.infrastructure.replay.backup import backup, copy_log, restore
from reservation_expiry.infrastructure.startup import check, prepare
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.logs import FOREIGN_TOPIC, verified
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """Where nothing is yet, of either kind, whatever the log is in."""
    if request.param == "sqlite":
        return tmp_path / "copy.db"
    return request.getfixturevalue("postgres").address("copy")


def digest(address: Address) -> str:
    store = open_store(address)
    try:
        return Queries(store).digest()
    finally:
        store.close()


def test_a_copy_has_the_same_digest_verifies_and_can_be_served(
    log: Address, target: Address, clock: ManualClock
) -> None:
    report = copy_log(log, target)
    assert (report.events, report.found) == (9, 0)
    assert report.digest == digest(log) == digest(target)
    assert check_invariants(target).counts() == check_invariants(log).counts()
    assert check(target) == "ready"
    application = ReservationApplication(target, clock)
    application.start(alarms=False)
    assert application.get("seat-2") is not None
    assert application.hold("seat-9", 60).version == 2
    application.stop()


def test_there_and_back_again_is_where_it_was(
    log: Address, target: Address, tmp_path: Path
) -> None:
    copy_log(log, target)
    copy_log(target, tmp_path / "back.db")
    assert digest(tmp_path / "back.db") == digest(log)


def test_a_filled_file_has_every_index_that_a_new_one_has(log: Address, tmp_path: Path) -> None:
    """Filling makes them at the end."""
    copy_log(log, tmp_path / "filled.db")
    prepare(tmp_path / "new.db")
    made = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    filled, new = (dict(sql(tmp_path / f"{name}.db", made)) for name in ("filled", "new"))
    assert filled.keys() == new.keys()


def test_a_copy_never_lands_on_a_log_that_has_events(log: Address, target: Address) -> None:
    copy_log(log, target)
    with pytest.raises(ImportRefused, match="holds events already"):
        copy_log(log, target)
    assert verified(target).found == 0


def test_a_damaged_log_is_not_copied_and_the_target_stays_empty(
    log: Address, target: Address
) -> None:
    sql(log, FOREIGN_TOPIC)
    with pytest.raises(ImportRefused, match="event 1 is not an event of ours"):
        copy_log(log, target)
    prepare(target)
    assert verified(target).events == 0
    sql(log, "DELETE FROM events WHERE position > 1")
    sql(log, FOREIGN_TOPIC.replace("os:system", "reservation.Held"))
    with pytest.raises(ImportRefused, match="ends at position 1, but 9 was committed"):
        copy_log(log, target)
    assert verified(target).events == 0


def test_a_copy_of_nothing_is_refused(target: Address, new_address: Callable[[], Address]) -> None:
    with pytest.raises(DatabaseRefused, match="there is no database"):
        copy_log(new_address(), target)


def test_a_servers_database_is_not_backed_up_as_a_file(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    address = postgres.address("copy")
    for attempt in (
        lambda: backup(address, tmp_path / "x"),
        lambda: restore(tmp_path / "x", address),
    ):
        with pytest.raises(DatabaseRefused, match="pg_dump"):
            attempt()
