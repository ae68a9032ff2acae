"""Ready is who settles what is due, and not who merely looks busy; and it is told at once."""

import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest

from reservation_expiry.infrastructure import readiness
from reservation_expiry.infrastructure.alarms import dispatcher as alarm_dispatcher
from reservation_expiry.infrastructure.alarms.claims import ClaimDueAlarms
from reservation_expiry.infrastructure.alarms.dispatcher import AlarmDispatcher
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.alarms.scheduler import AlarmJobStore
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreBusy
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from tests.crash.staging import expired_count, hold_in, now_ms
from tests.support.database import sql
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.server import wait_for

pytestmark = pytest.mark.real_time

NAMES = [f"seat-{number}" for number in range(5)]
LIMIT_SECONDS = 0.4


@pytest.fixture(autouse=True)
def _little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ALARM_LIMIT_SECONDS", LIMIT_SECONDS)
    monkeypatch.setattr(readiness, "ASK_SECONDS", 0.3)
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.alarms.scheduler.POLL_SECONDS", LIMIT_SECONDS / 4
    )


@pytest.fixture
def address(new_address: Callable[[], Address]) -> Address:
    """With holds that have been due for an hour."""
    address = new_address()
    hold_in(address, NAMES, due_at_ms=now_ms() - 3_600_000)
    return address


@pytest.fixture
def application(address: Address) -> Iterator[ReservationApplication]:
    application = ReservationApplication(address, alarm_log=AlarmLog(BytesIO()))
    yield application
    application.stop()


class Gate:
    """Keeps whoever comes until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.opened = threading.Event()
        passed = getattr(owner, name)

        def kept(*arguments: Any, **keywords: Any) -> Any:
            self.opened.wait(10)
            return passed(*arguments, **keywords)

        monkeypatch.setattr(owner, name, kept)


def reasons(application: ReservationApplication) -> str:
    return "; ".join(application.readiness().reasons)


def becomes_ready(application: ReservationApplication) -> None:
    wait_for(lambda: expired_count(application._store.address) == len(NAMES), 5)
    wait_for(lambda: application.readiness().ready, 2)


def test_f35_claims_that_are_in_a_thread_that_stands_still(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, AlarmDispatcher, "settle")
    application.start()
    try:
        wait_for(lambda: "5 alarms were claimed and not settled within" in reasons(application), 5)
    finally:
        gate.opened.set()
    becomes_ready(application)


def test_f35_claims_that_get_lost(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their lease is not over, so that nothing is due, and passes end as they should."""
    with monkeypatch.context() as patched:
        patched.setattr(AlarmDispatcher, "settle", lambda self, claims: None)
        application.start()
        wait_for(lambda: "5 alarms were claimed and not settled within" in reasons(application), 5)
    assert application.readiness().backlog_ms == 0
    sql(application._store.address, "UPDATE alarms SET next_run_time = 1")  # the leases end
    becomes_ready(application)


def test_f35_due_alarms_that_are_never_claimed_while_passes_end(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(AlarmDispatcher, "claim", lambda self: [])
        application.start()
        assert reasons(application) == ""  # it has just begun
        wait_for(lambda: "alarms have been due for 3600 s" in reasons(application), 5)
        assert application.alarm_clock.seconds_since_pass < 2
    becomes_ready(application)


def test_f35_claims_that_fail(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(work: ClaimDueAlarms, unit: object) -> None:
        raise StoreBusy("host=10.0.0.1 is busy")

    with monkeypatch.context() as patched:
        patched.setattr(ClaimDueAlarms, "run", refuse)
        application.start()
        wait_for(lambda: "due alarms could not be claimed for" in reasons(application), 5)
        assert "the last transaction failed: the database is busy" in reasons(application)
        assert "10.0.0.1" not in reasons(application)
    becomes_ready(application)


def test_f35_a_pass_that_never_ends(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "PASS_LIMIT_SECONDS", LIMIT_SECONDS)
    gate = Gate(monkeypatch, AlarmJobStore, "get_due_jobs")
    application.start()
    try:
        wait_for(lambda: "no pass over the alarms has ended" in reasons(application), 5)
    finally:
        gate.opened.set()
    becomes_ready(application)


def test_f35_a_long_backlog_that_is_being_drained_is_no_reason(
    application: ReservationApplication, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarm_dispatcher, "CLAIM_LIMIT", 10)
    settle = AlarmDispatcher.settle
    monkeypatch.setattr(
        AlarmDispatcher, "settle", lambda self, claims: time.sleep(0.1) or settle(self, claims)
    )
    many = [f"mass-{number}" for number in range(200)]
    hold_in(address, many, due_at_ms=now_ms() - 7_200_000)
    application.start()
    seen, deadline = set(), time.monotonic() + 10
    while expired_count(address) < len(many) + len(NAMES):
        found = application.readiness()
        seen.add(found.reasons)
        assert found.backlog_ms == 0 or found.backlog_ms > 3_600_000
        assert time.monotonic() < deadline
    assert seen == {()}


def test_f35_what_nobody_here_runs_and_what_is_parked_is_no_backlog(
    application: ReservationApplication, address: Address
) -> None:
    sql(address, "INSERT INTO alarms VALUES ('object/Elsewhere/foo', 1, x'00')")
    sql(address, "UPDATE alarms SET next_run_time = NULL WHERE id = 'reservation/seat-0'")
    application.start()
    wait_for(lambda: expired_count(address) == len(NAMES) - 1, 5)
    time.sleep(2 * LIMIT_SECONDS)
    found = application.readiness()
    assert (found.reasons, found.backlog_ms, found.parked) == ((), 0, 1)


def test_f35_claims_that_another_process_took_over_are_no_reason(
    application: ReservationApplication, address: Address
) -> None:
    """As of a process that was frozen past its lease, and has not heard of it yet."""
    application.start(alarms=False)
    assert len(application.alarm_dispatcher.claim()) == len(NAMES)
    time.sleep(2 * LIMIT_SECONDS)
    assert len(application.alarm_dispatcher.unsettled(LIMIT_SECONDS)) == len(NAMES)
    assert readiness.backlog_of(application.queries, application.alarm_dispatcher, 0).unsettled == 5
    sql(address, "UPDATE alarms SET job_state = x'00'")
    assert readiness.backlog_of(application.queries, application.alarm_dispatcher, 0).unsettled == 0
    assert application.alarm_dispatcher.unsettled(LIMIT_SECONDS) == []


# Asking must not take long


def test_f35_a_database_that_does_not_answer_the_question_is_a_reason_told_in_time(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.start()
    becomes_ready(application)
    gate = Gate(monkeypatch, Queries, "backlog")
    try:
        for _ in range(3):
            began = time.monotonic()
            assert "the database did not tell what is due" in reasons(application)
            assert time.monotonic() - began < 0.6
        asking = [t for t in threading.enumerate() if t.name == "readiness"]
        assert len(asking) == 1, "one question at a time"
    finally:
        gate.opened.set()
    wait_for(lambda: application.readiness().ready, 2)


def test_f35_a_server_that_stands_still_is_a_reason_told_in_time(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.address("readiness")
    prepare(address)
    with Proxy(postgres.port) as proxy:
        through = PostgresAddress(address.url.replace(f":{postgres.port}/", f":{proxy.port}/"))
        monkeypatch.setattr(
            "reservation_expiry.infrastructure.stores.postgres.database.ANSWER_SECONDS", 1.0
        )
        application = ReservationApplication(through)
        application.start()
        try:
            wait_for(lambda: application.readiness().ready, 5)
            proxy.is_still = True
            began = time.monotonic()
            assert "the database did not tell what is due" in reasons(application)
            assert time.monotonic() - began < 0.6
            proxy.is_still = False
            proxy.cut()
            wait_for(lambda: application.readiness().ready, 5)
        finally:
            application.stop()


def test_f35_damage_where_the_question_leads_is_a_reason(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(queries: Queries, *arguments: object) -> None:
        raise StoreBusy("/srv/secret/reservations.db is locked")

    application.start()
    becomes_ready(application)
    monkeypatch.setattr(Queries, "backlog", refuse)
    assert reasons(application) == "what is due cannot be told: the database is busy: try again"
