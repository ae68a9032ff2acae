"""The alarm clock on real threads: whatever raises on the way from a claim to its thread."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import pytest
from apscheduler.schedulers.base import STATE_STOPPED

from reservation_expiry.domain.ids import ID_PREFIX
from reservation_expiry.infrastructure.alarms import scheduler
from reservation_expiry.infrastructure.alarms.dispatcher import AlarmDispatcher
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.alarms.scheduler import (
    AlarmJobStore,
    AlarmScheduler,
    AtOnce,
    BatchExecutor,
)
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import OutcomeUnknown, StoreBusy
from reservation_expiry.infrastructure.instants import datetime_of_ms
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.writer import Writer
from tests.crash.staging import expired_count, hold_in, now_ms
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.server import wait_for

pytestmark = pytest.mark.real_time

NAMES = [f"seat-{number}" for number in range(5)]
STOPS = 20


class Clockwork:
    """An application whose clock a test starts when its fault is in place."""

    def __init__(self, address: Address) -> None:
        self.address = address
        prepare(address)
        self.lines = BytesIO()
        self.application = ReservationApplication(address, alarm_log=AlarmLog(self.lines))
        self.counts = self.application.alarm_dispatcher.counts

    def make_due(self) -> None:
        hold_in(self.address, NAMES, due_at_ms=now_ms() - 100)

    def start(self) -> None:
        """So that the scheduler is what comes by when they are due."""
        self.application.start()
        wait_for(lambda: self.scheduler is not None, 5)
        self.make_due()
        self.application.alarm_clock.wake_for(0)

    @property
    def scheduler(self) -> AlarmScheduler | None:
        return self.application.alarm_clock._scheduler

    def all_expired(self) -> bool:
        return expired_count(self.address) == len(NAMES)

    def retry_counts(self) -> set[int]:
        """Of all that have expired; a line is written after the commit that it tells of."""

        def lines() -> list[bytes]:
            return self.lines.getvalue().splitlines()

        wait_for(lambda: len(lines()) >= len(NAMES), 5)
        return {json.loads(line)["retryCount"] for line in lines()}

    def tokens(self) -> list[tuple]:
        return sql(
            self.address, "SELECT id FROM alarms WHERE CAST(job_state AS TEXT) LIKE '%token%'"
        )


@pytest.fixture
def clockwork(new_address: Callable[[], Address]) -> Iterator[Clockwork]:
    clockwork = Clockwork(new_address())
    yield clockwork
    clockwork.application.stop()


class Fault:
    """In the place of a function: raises until it is mended. Counts its calls."""

    def __init__(self, error: BaseException, instead_of: Callable[..., Any]) -> None:
        self._error = error
        self._instead_of = instead_of
        self.is_mended = False
        self.calls = 0

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self.is_mended:
            return self._instead_of(*arguments, **keywords)
        self.calls += 1
        raise self._error

    def put_in(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        monkeypatch.setattr(owner, name, lambda *a, **k: self(*a, **k))


# Where it may raise: (the class, its method, the error)
ON_THE_WAY = {
    "making the job": (AlarmJobStore, "_job", ValueError("bad zone")),
    "its trigger": (AtOnce, "get_next_fire_time", ValueError("no such time")),
    "finding the executor": (AlarmScheduler, "_lookup_executor", KeyError("alarms")),
    "submitting it": (BatchExecutor, "submit_job", RuntimeError("after shutdown")),
    "the pool": (ThreadPoolExecutor, "submit", RuntimeError("can't start new thread")),
    "the exit of it all": (AlarmScheduler, "_lookup_executor", SystemExit()),
    "the counts": (AlarmDispatcher, "_note", RuntimeError("the loop has ended")),
}


def test_what_is_overdue_at_a_start_does_not_wait_for_the_scheduler(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, loaded = threading.Event(), threading.Event()
    make = scheduler.make_scheduler

    def make_when_told(*parts: Any) -> AlarmScheduler:
        loading.set()
        loaded.wait(10)
        return make(*parts)

    monkeypatch.setattr(scheduler, "make_scheduler", make_when_told)
    clockwork.make_due()
    clockwork.application.start()
    assert loading.wait(5)
    assert clockwork.all_expired()
    assert clockwork.application.readiness().reasons == ()
    loaded.set()


def test_a_first_batch_that_fails_leaves_its_alarms_to_the_scheduler(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Fault(RuntimeError("the loop has ended"), AlarmDispatcher.claim)
    fault.put_in(monkeypatch, AlarmDispatcher, "claim")
    clockwork.make_due()
    clockwork.application.start()
    wait_for(lambda: clockwork.scheduler is not None, 5)
    fault.is_mended = True
    wait_for(clockwork.all_expired, 5)
    assert "a first pass over the alarms failed; the next follows" in caplog.text


@pytest.mark.parametrize("where", ON_THE_WAY)
def test_f78_what_raises_between_claim_and_thread_gives_the_claims_back_uncounted(
    where: str, clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, error = ON_THE_WAY[where]
    fault = Fault(error, getattr(owner, name))
    fault.put_in(monkeypatch, owner, name)
    clockwork.start()
    wait_for(lambda: clockwork.counts["released"] >= 2 * len(NAMES), 5)
    assert clockwork.application.alarm_dispatcher.unsettled(0.5) == []
    fault.is_mended = True
    wait_for(clockwork.all_expired, 5)
    assert clockwork.retry_counts() == {0}
    assert fault.calls < 8, "it was tried without a pause"
    clockwork.application.stop()
    check_invariants(clockwork.address)


def test_f78_a_thread_that_comes_late_to_claims_given_back_leaves_them_alone(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that cannot start a thread says so, and has the work in its queue all the same."""
    submit, late = ThreadPoolExecutor.submit, []

    def queue_and_raise(pool: ThreadPoolExecutor, *arguments: Any) -> Any:
        if late:
            return submit(pool, *arguments)
        late.append(arguments)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", queue_and_raise)
    settled: list[int] = []
    settle = AlarmDispatcher.settle
    monkeypatch.setattr(
        AlarmDispatcher,
        "settle",
        lambda self, claims: settled.append(len(claims)) or settle(self, claims),
    )
    clockwork.start()
    wait_for(clockwork.all_expired, 5)
    (run_job, *rest) = late[0]
    run_job(*rest)
    assert settled == [len(NAMES)]


def test_f78_what_raises_behind_the_thread_has_the_batch_run_once(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(ValueError("after the fact"), AlarmJobStore.update_job)
    fault.put_in(monkeypatch, AlarmJobStore, "update_job")
    clockwork.start()
    wait_for(clockwork.all_expired, 5)
    wait_for(lambda: fault.calls, 5)
    assert clockwork.counts["released"] == 0


def test_f72_nothing_of_the_clocks_asks_for_the_local_time_zone(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_zone() -> None:
        raise ValueError("no zone of this machine can be told")

    for module in ("schedulers.base", "triggers.date", "triggers.interval"):
        monkeypatch.setattr(f"apscheduler.{module}.get_localzone", no_zone)
    clockwork.start()
    wait_for(clockwork.all_expired, 5)
    assert clockwork.application.readiness().reasons == ()


def test_f78_a_claim_whose_outcome_was_lost_is_given_back_if_it_was_made(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Writer.execute
    lost: list[object] = []

    def execute_and_lose(writer: Writer, work: Any) -> Any:
        result = execute(writer, work)
        if type(work).__name__ == "ClaimDueAlarms" and not lost:
            lost.append(result)
            raise OutcomeUnknown("the answer was lost")
        return result

    monkeypatch.setattr(Writer, "execute", execute_and_lose)
    clockwork.start()
    wait_for(clockwork.all_expired, 4)  # its lease would be 5 s
    assert clockwork.retry_counts() == {0}


# F86: the end


def test_f86_a_stop_in_the_middle_of_a_pass_raises_nothing(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim = AlarmDispatcher.claim
    stopping: list[threading.Thread] = []

    def claim_and_be_stopped(handler: AlarmDispatcher) -> Any:
        claims = claim(handler)
        if claims and not stopping:
            scheduler = clockwork.scheduler
            stop = threading.Thread(target=clockwork.application.alarm_clock.stop)
            stop.start()
            stopping.append(stop)
            wait_for(lambda: scheduler.state == STATE_STOPPED, 5)
        return claims

    monkeypatch.setattr(AlarmDispatcher, "claim", claim_and_be_stopped)
    clockwork.start()
    wait_for(lambda: stopping, 5)
    stopping[0].join(5)
    assert not stopping[0].is_alive()
    assert clockwork.all_expired(), "what was claimed is run"
    assert [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info] == []


def test_f86_twenty_stops_in_a_row_leave_no_traceback(
    new_address: Callable[[], Address], caplog: pytest.LogCaptureFixture
) -> None:
    address = new_address()
    for number in range(STOPS):
        hold_in(address, [f"seat-{number}"], due_at_ms=now_ms() - 100)
        application = ReservationApplication(address)
        application.start()
        time.sleep(0.002 * (number % 10))
        application.stop()
    assert [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info] == []


def test_f86_stops_while_the_server_is_away_leave_no_traceback(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.postgres.session.ASK_OUTCOME_SECONDS", 0.2
    )
    address = postgres.address("stops")
    hold_in(address, NAMES, due_at_ms=now_ms() + 60_000)
    with Proxy(postgres.port) as proxy:
        through = PostgresAddress(address.url.replace(f":{postgres.port}/", f":{proxy.port}/"))
        for number in range(5):
            application = ReservationApplication(through)
            application.start()
            wait_for(lambda application=application: application.readiness().ready, 5)
            proxy.refusing = True
            proxy.cut()
            time.sleep(0.1 * number)
            application.stop()
            proxy.refusing = False
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_f86_a_sweep_that_the_database_refuses_is_a_sentence(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(application: ReservationApplication) -> None:
        raise StoreBusy("it is busy")

    monkeypatch.setattr(ReservationApplication, "_strays", refuse)
    clockwork.start()
    wait_for(
        lambda: "the search for inconsistent rows is repeated in 60 s: it is busy" in caplog.text, 5
    )
    assert [record for record in caplog.records if record.exc_info] == []


def test_f78_a_job_is_over_for_nobody(clockwork: Clockwork) -> None:
    trigger = AtOnce()
    first = trigger.get_next_fire_time(None, None)
    assert first == trigger.get_next_fire_time(first, None)
    assert first.year == 9999


# The table of alarms, as APScheduler's questions have it


def test_apscheduler_is_told_of_every_alarm_from_the_table(
    new_address: Callable[[], Address],
) -> None:
    address = new_address()
    due_ms = now_ms() + 600_000
    hold_in(address, ["seat-1", "seat-2", "seat-3", "seat-4"], due_at_ms=due_ms)
    sql(address, f"UPDATE alarms SET next_run_time = NULL WHERE id = '{ID_PREFIX}seat-2'")
    sql(address, f"UPDATE alarms SET job_state = x'00' WHERE id = '{ID_PREFIX}seat-3'")
    sql(
        address,
        f"UPDATE alarms SET next_run_time = next_run_time + 1 WHERE id = '{ID_PREFIX}seat-4'",
    )
    application = ReservationApplication(address)
    application.start()
    try:
        wait_for(lambda: application.alarm_clock._scheduler is not None, 5)
        scheduler = application.alarm_clock._scheduler
        jobs = scheduler.get_jobs("alarms")
        assert [job.id.rpartition("/")[2] for job in jobs] == ["seat-1", "seat-4", "seat-2"]
        assert [job.next_run_time for job in jobs] == [
            datetime_of_ms(due_ms),
            datetime_of_ms(due_ms + 1_000),
            None,
        ]
        assert {job.trigger.run_date for job in jobs} == {datetime_of_ms(due_ms)}
        assert scheduler.get_job(jobs[0].id, "alarms").next_run_time == datetime_of_ms(due_ms)
        assert scheduler.get_job(jobs[0].id.replace("seat-1", "seat-9"), "alarms") is None
        scheduler.remove_job(jobs[0].id, "alarms")
        assert len(scheduler.get_jobs("alarms")) == 3, "only what ends a hold removes its alarm"
    finally:
        application.stop()
