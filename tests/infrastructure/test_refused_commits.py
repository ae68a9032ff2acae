"""A PostgreSQL server that refuses to commit for a while, and then is well again."""

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from reservation_expiry.infrastructure import readiness
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreError
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from tests.crash.staging import expired_count, hold_in, now_ms
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.postgres import PostgresServer
from tests.support.server import wait_for

DISK_FULL, READ_ONLY, TIMED_OUT, DEADLOCK, LOST = "53100", "25006", "57014", "40P01", "08006"
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON {table}
DEFERRABLE INITIALLY {when} FOR EACH ROW EXECUTE FUNCTION refuse()"""


@pytest.fixture
def address(postgres: PostgresServer) -> PostgresAddress:
    address = postgres.address("refused_commits")
    prepare(address)
    return address


@pytest.fixture
def application(address: PostgresAddress) -> Iterator[ReservationApplication]:
    application = ReservationApplication(address)
    application.start(alarms=False)
    yield application
    application.stop()


def refuse(
    address: PostgresAddress, code: str, table: str = "events", when: str = "DEFERRED"
) -> None:
    with psycopg.connect(address.url, autocommit=True) as connection:
        connection.execute(REFUSE.format(code=code, table=table, when=when))


def stop_refusing(address: PostgresAddress) -> None:
    sql(address, "DROP FUNCTION refuse CASCADE")


@pytest.mark.parametrize("code", [DISK_FULL, READ_ONLY, TIMED_OUT, DEADLOCK, LOST])
@pytest.mark.parametrize("refused", [1, 6, 12])  # the driver prepares what is run six times
def test_f79_after_refused_commits_the_first_hold_is_taken(
    application: ReservationApplication, address: PostgresAddress, code: str, refused: int
) -> None:
    application.hold("seat-0", 60)
    refuse(address, code)
    for number in range(refused):
        with pytest.raises(StoreError):
            application.hold(f"seat-{number}", 60)
    stop_refusing(address)
    for number in range(12):
        assert application.hold(f"seat-{number}", 60).status == "held"
    assert application.readiness().reasons == ("the alarm clock is not running",)
    check_invariants(address)


@pytest.mark.parametrize("table", ["events", "writers"])
@pytest.mark.parametrize("before", range(3, 8))
def test_f79_a_commit_that_was_never_looked_at_for_the_statement_before_it_is_not_missed(
    application: ReservationApplication, address: PostgresAddress, table: str, before: int
) -> None:
    """The server skips what follows a failure in a pipeline, the first COMMIT that the driver
    has it prepare among it: every commit since was of a statement that does not exist."""
    for number in range(before):
        application.hold(f"seat-{number}", 60)
    refuse(address, DISK_FULL, table, "IMMEDIATE")
    for number in range(8):
        with pytest.raises(StoreError):
            application.hold(f"seat-{number}", 60)
    stop_refusing(address)
    for number in range(12):
        assert application.hold(f"seat-{number}", 60).status == "held"


@pytest.mark.real_time
def test_f79_alarms_that_fell_due_meanwhile_ring_when_it_is_well_again(
    address: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "ALARM_LIMIT_SECONDS", 0.5)
    names = [f"seat-{number}" for number in range(8)]
    hold_in(address, names, due_at_ms=now_ms() - 1_000)
    refuse(address, DISK_FULL)
    application = ReservationApplication(address)
    application.start()
    counts = application.alarm_dispatcher.counts
    try:
        wait_for(lambda: counts["released"] >= 4 * len(names), 5)
        reasons = "; ".join(application.readiness().reasons)
        assert "none was settled" in reasons
        stop_refusing(address)
        wait_for(lambda: expired_count(address) == len(names), 5)
        wait_for(lambda: application.readiness().ready, 2)
    finally:
        application.stop()
    assert counts["released"] <= 8 * len(names), "it was tried without a pause"
    assert (counts["ok"], counts["retry"], counts["parked"]) == (len(names), 0, 0)


def test_f79_a_writer_whose_server_forgot_its_statements_fails_once(
    application: ReservationApplication,
) -> None:
    """As behind a pooler, too, which ours is not made for: it has to hand out whole sessions."""
    for _ in range(12):
        application.hold("seat-1", 60)
    for _ in range(2):
        forget_statements(application)
        assert application.hold("seat-1", 60).status == "held"


def forget_statements(application: ReservationApplication) -> None:
    """In the writer's own thread."""

    class Forget(Work):
        on_tables = True

        def run(self, unit: UnitOfWork) -> None:
            unit.session._connection.pgconn.exec_(b"DEALLOCATE ALL")

    with suppress(StoreError):  # its own commit is one of those forgotten
        application.writer.execute(Forget())


def test_f79_a_reader_whose_server_forgot_its_statements_is_replaced(
    application: ReservationApplication, address: PostgresAddress
) -> None:
    """As a pooler does between two of its clients: DISCARD ALL."""
    application.hold("seat-1", 60)
    for _ in range(8):
        assert application.get("seat-1").status == "held"
    store = application._store
    connection = store._readers.take()
    connection.pgconn.exec_(b"DISCARD ALL")
    store._readers.give_back(connection)
    assert application.get("seat-1").status == "held"
    sql(address, "ALTER TABLE reservations ALTER version TYPE integer")
    assert application.get("seat-1").status == "held"
