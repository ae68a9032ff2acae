"""Alarms on a clock that a test moves: claimed, settled, retried, parked, driven again."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest

from reservation_expiry.domain.alarm import MAX_ATTEMPTS, retry_delay_ms
from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.domain.reservation import expire
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.alarms import claims as alarm_commands
from reservation_expiry.infrastructure.alarms import dispatcher as alarm_dispatcher
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.claims import SettleAlarms
from reservation_expiry.infrastructure.alarms.dispatcher import LEASE_MS, AlarmDispatcher
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import HoldReservation
from reservation_expiry.infrastructure.errors import StoreFull, StoreUnavailable
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.session import Session
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork
from tests.support.clock import ManualClock
from tests.support.database import have_little_patience, locked, sql
from tests.support.invariants import check_invariants

T = 1_800_000_000_000
DUE = T + 5_000  # every hold here is of 5 s
SEAT = "reservation/seat-1"


class Alarms:
    """An application whose alarms are run by hand, and what can be seen of them."""

    def __init__(self, address: Address, clock: ManualClock, stream: BytesIO | None = None) -> None:
        self.address = address
        self.clock = clock
        self.stream = stream or BytesIO()
        self.application = ReservationApplication(address, clock, AlarmLog(self.stream))
        self.session_class = type(open_store(address).session())
        self.handler = self.application.alarm_dispatcher

    def hold(self, *names: str) -> None:
        for name in names:
            self.application.hold(name, 5)

    def claim(self, at: int | None = None) -> list[Claim]:
        self.clock.move_to(at or self.clock.now_ms())
        return self.handler.claim()

    def run(self, at: int | None = None) -> list[str]:
        """One pass. The outcomes of its attempts."""
        before = len(self.lines())
        claims = self.claim(at)
        if claims:
            self.handler.settle(claims)
        return [line["outcome"] for line in self.lines()[before:]]

    def lines(self) -> list[dict[str, Any]]:
        """What the alarm log has said so far."""
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def row(self, name: str = "seat-1") -> tuple[int | None, AlarmSlot] | None:
        """(when it is looked at next in ms, what it remembers); None if there is none."""
        rows = self.sql("SELECT next_run_time, job_state FROM alarms WHERE id LIKE ?", f"%/{name}")
        if not rows:
            return None
        ((seconds, job_state),) = rows
        return None if seconds is None else round(seconds * 1000), alarm_row.decode(job_state)

    def sql(self, statement: str, *values: Any) -> list[tuple]:
        """Runs it behind the product's back."""
        return sql(self.address, statement, *values)

    def spoil(self) -> Callable[[], object]:
        """Makes an event of seat-1's hold undecodable. What repairs it again."""
        where = f"WHERE originator_id = '{SEAT}' AND originator_version = 1"
        ((state,),) = self.sql(f"SELECT state FROM events {where}")
        self.sql(f"UPDATE events SET state = x'00' {where}")
        return lambda: self.sql(f"UPDATE events SET state = ? {where}", state)

    def status(self, name: str = "seat-1") -> str:
        return self.application.get(name).status


@pytest.fixture
def alarms(address: Address, clock: ManualClock) -> Iterator[Alarms]:
    alarms = Alarms(address, clock)
    alarms.application.start(alarms=False)
    yield alarms
    alarms.application.stop()


# How an attempt ends


@pytest.mark.parametrize("late_ms", [0, 1, 3_600_000])
def test_a_due_alarm_expires_its_hold_and_is_gone(alarms: Alarms, late_ms: int) -> None:
    alarms.hold("seat-1")
    assert alarms.run(at=DUE - 1) == []
    assert alarms.run(at=DUE + late_ms) == ["ok"]
    state = alarms.application.get("seat-1")
    assert (state.status, state.expired_at_ms) == ("expired", DUE + late_ms)
    assert alarms.row() is None
    assert alarms.run(at=DUE + late_ms) == []
    check_invariants(alarms.address)


def test_an_alarm_of_what_was_never_held_is_rejected_and_its_row_deleted(alarms: Alarms) -> None:
    stale = alarm_row.encode(AlarmSlot(DUE))
    alarms.sql("INSERT INTO alarms VALUES ('reservation/ghost', ?, ?)", DUE / 1000, stale)
    assert alarms.run(at=DUE) == ["rejected"]
    assert alarms.row("ghost") is None
    assert alarms.application.get("ghost") is None


def test_an_alarm_of_what_has_ended_is_rejected_and_its_row_deleted(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    alarms.application.expire("seat-1", DUE)
    assert alarms.row() is None
    stale = alarm_row.encode(AlarmSlot(DUE))
    alarms.sql("INSERT INTO alarms VALUES (?, ?, ?)", SEAT, DUE / 1000, stale)
    assert alarms.run(at=DUE) == ["rejected"]
    log = check_invariants(alarms.address)
    assert log.states["seat-1"].expiration_count == 1


@pytest.mark.parametrize("early_ms", [1, 5, 5_000])
def test_an_early_alarm_is_rejected_and_wakes_again_at_its_time(
    alarms: Alarms, early_ms: int
) -> None:
    """F10."""
    alarms.hold("seat-1")
    alarms.sql("UPDATE alarms SET next_run_time = ?", (DUE - early_ms) / 1000)
    assert alarms.run(at=DUE - early_ms) == ["rejected"]
    assert alarms.status() == "held"
    assert alarms.row() == (DUE, AlarmSlot(DUE, attempts=0, token=None))
    assert alarms.run(at=DUE - 1) == []
    assert alarms.run(at=DUE) == ["ok"]
    assert alarms.handler.counts == {"rejected": 1, "ok": 1, "lapsed": 0, "parked": 0}


def test_an_alarm_that_is_settled_twice_takes_effect_once(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    claims = alarms.claim(at=DUE)
    alarms.handler.settle(claims)
    alarms.handler.settle(claims)
    assert [line["outcome"] for line in alarms.lines()] == ["ok", "rejected"]
    assert check_invariants(alarms.address).counts()["Expired"] == 1


def test_a_batch_takes_no_more_than_its_limit_the_earliest_first(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarm_dispatcher, "CLAIM_LIMIT", 2)
    for name in ("seat-3", "seat-1", "seat-2"):
        alarms.hold(name)
        alarms.clock.advance(1)
    assert [claim.id[-1] for claim in alarms.claim(at=DUE + 10)] == ["3", "1"]
    assert [claim.id[-1] for claim in alarms.claim()] == ["2"]
    assert alarms.claim() == []


# F6: a new hold while the old one's alarm is being handled


def test_a_new_hold_before_the_settlement_stays_held_with_its_own_alarm(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    claims = alarms.claim(at=DUE)
    alarms.hold("seat-1")
    alarms.handler.settle(claims)
    assert alarms.lines()[0]["outcome"] == "rejected"
    assert alarms.status() == "held"
    assert alarms.row() == (DUE + 5_000, AlarmSlot(DUE + 5_000))
    assert check_invariants(alarms.address).counts()["Expired"] == 1  # with the new hold


def test_a_new_hold_after_the_settlement_stays_held_with_its_own_alarm(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    assert alarms.run(at=DUE) == ["ok"]
    alarms.hold("seat-1")
    assert alarms.row() == (DUE + 5_000, AlarmSlot(DUE + 5_000))
    assert check_invariants(alarms.address).counts()["Expired"] == 1


@pytest.mark.parametrize("order", ["hold first", "alarm first"])
def test_a_new_hold_in_the_very_transaction_of_the_settlement_stays_held(
    alarms: Alarms, order: str
) -> None:
    alarms.hold("seat-1")
    works = [SettleAlarms(alarms.claim(at=DUE)), HoldReservation(SEAT, 5)]
    if order == "hold first":
        works.reverse()
    in_one_transaction(alarms, works)
    assert alarms.status() == "held"
    assert alarms.row() == (DUE + 5_000, AlarmSlot(DUE + 5_000))
    assert check_invariants(alarms.address).counts()["Expired"] == 1
    assert alarms.run(at=DUE + 5_000) == ["ok"]


def in_one_transaction(alarms: Alarms, works: list) -> None:
    session = open_store(alarms.address).session()
    session.begin()
    unit = UnitOfWork(session, EventMapper(), alarms.clock.now_ms())
    for work in works:
        work.run(unit)
    unit.flush()
    session.commit()
    session.close()


# F4: a row that cannot be read

UNREADABLE = {
    "nothing": b"",
    "garbage": b"\x00\xff\x17",
    "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
    "a newer version": b'{"v":2,"scheduled_time":1800000005000}',
    "too little": b'{"v":1}',
    "too much": b'{"v":1,"scheduled_time":1800000005000,"color":"red"}',
    "a time that is text": b'{"v":1,"scheduled_time":"1800000005000"}',
    "a list": b"[1]",
}
OF_ANOTHER_TYPE = {"text": "garbage", "an integer": 7, "a fraction": 7.5}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_alarm_that_cannot_be_read_is_parked_listed_counted_and_driven_again(
    kind: str, alarms: Alarms
) -> None:
    is_parked_and_driven_again(alarms, UNREADABLE[kind])


@pytest.mark.usefixtures("database_path")  # in a SQLite column there may be anything
@pytest.mark.parametrize("kind", OF_ANOTHER_TYPE)
def test_an_alarm_of_another_type_is_parked_listed_counted_and_driven_again(
    kind: str, alarms: Alarms
) -> None:
    is_parked_and_driven_again(alarms, OF_ANOTHER_TYPE[kind])


def is_parked_and_driven_again(alarms: Alarms, state: object) -> None:
    alarms.hold("seat-1", "seat-2")
    alarms.sql("UPDATE alarms SET job_state = ? WHERE id = ?", state, SEAT)
    assert alarms.run(at=DUE) == ["ok"]  # seat-2, which is not in its way
    assert alarms.handler.counts["parked"] == 1
    assert alarms.application.queries.parked(10) == [SEAT]
    assert alarms.application.readiness().parked == 1
    assert alarms.sql("SELECT * FROM alarms") == [(SEAT, None, state)]
    assert alarms.run(at=DUE + 3_600_000) == []
    assert alarms.application.redrive("seat-1")
    assert alarms.run() == ["ok"]
    check_invariants(alarms.address)


@pytest.mark.usefixtures("database_path")
def test_an_alarm_whose_state_is_text_that_is_not_utf8_is_parked_too(alarms: Alarms) -> None:
    alarms.hold("seat-1", "seat-2")
    alarms.sql("UPDATE alarms SET job_state = CAST(x'ff00' AS TEXT) WHERE id = ?", SEAT)
    assert alarms.run(at=DUE) == ["ok"]
    assert alarms.application.queries.parked(10) == [SEAT]


@pytest.mark.usefixtures("database_path")
def test_a_state_that_somebody_stored_as_text_is_still_a_state(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    alarms.sql("UPDATE alarms SET job_state = CAST(job_state AS TEXT)")
    assert alarms.run(at=DUE) == ["ok"]


# F5: a handler that fails


def test_a_failing_alarm_is_tried_seven_times_later_and_later_then_parked(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    repair = alarms.spoil()
    assert alarms.run(at=DUE) == ["retry"]
    for attempts in range(1, MAX_ATTEMPTS):
        failed_at, (retry_at, state) = alarms.clock.now_ms(), alarms.row()
        delay_ms = 1_000 * 2**attempts
        assert delay_ms <= retry_at - failed_at <= delay_ms * 5 // 4
        assert state == AlarmSlot(DUE, attempts, token=None)
        assert alarms.run(at=retry_at - 1) == []
        assert alarms.run(at=retry_at) == ["retry" if attempts < 6 else "parked"]
    assert alarms.row() == (None, AlarmSlot(DUE, MAX_ATTEMPTS))
    assert alarms.application.queries.parked(10) == [SEAT]
    assert alarms.handler.counts == {"retry": 6, "parked": 1, "lapsed": 0}
    assert alarms.run(at=DUE + 3_600_000) == []
    repair()
    assert alarms.application.redrive("seat-1")
    assert alarms.run() == ["ok"]
    check_invariants(alarms.address)


def test_a_parked_alarm_that_is_driven_again_before_the_repair_starts_anew(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    alarms.spoil()
    parked = alarm_row.encode(AlarmSlot(DUE, MAX_ATTEMPTS))
    alarms.sql("UPDATE alarms SET next_run_time = NULL, job_state = ?", parked)
    assert alarms.application.redrive("seat-1")
    assert alarms.run(at=DUE) == ["retry"]
    assert alarms.row()[1].attempts == 1


def test_an_alarm_that_neither_log_nor_row_can_tell_stays_parked(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    alarms.spoil()
    alarms.sql("UPDATE alarms SET next_run_time = NULL, job_state = x'00'")
    assert not alarms.application.redrive("seat-1")
    assert alarms.sql("SELECT * FROM alarms") == [(SEAT, None, b"\x00")]


def test_what_is_not_held_has_no_alarm_to_drive_again(alarms: Alarms) -> None:
    assert not alarms.application.redrive("seat-1")
    alarms.hold("seat-1")
    alarms.run(at=DUE)
    assert not alarms.application.redrive("seat-1")


def test_a_failing_alarm_is_in_nobodys_way(alarms: Alarms) -> None:
    alarms.hold("seat-0", "seat-1", "seat-2")
    alarms.spoil()
    assert sorted(alarms.run(at=DUE)) == ["ok", "ok", "retry"]
    assert (alarms.status("seat-0"), alarms.status("seat-2")) == ("expired", "expired")


def test_a_new_hold_of_what_keeps_failing_starts_with_no_attempt_used(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    repair = alarms.spoil()
    assert alarms.run(at=DUE) == ["retry"]
    repair()
    alarms.hold("seat-1")
    assert alarms.row() == (DUE + 5_000, AlarmSlot(DUE + 5_000))


def test_an_error_that_nobody_thought_of_is_a_failure_of_its_own_alarm_only(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_bug(reservation: Any, now_ms: int) -> Any:
        if reservation.id == SEAT:
            raise ZeroDivisionError("oh")
        return expire(reservation, now_ms)

    monkeypatch.setattr(alarm_commands, "expire", with_a_bug)
    alarms.hold("seat-1", "seat-2")
    assert sorted(alarms.run(at=DUE)) == ["ok", "retry"]
    assert alarms.lines()[0]["error"] == "ZeroDivisionError: oh"


def test_a_log_that_contradicts_the_settlement_is_a_failure_of_its_own_alarm_only(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarms.hold("seat-1", "seat-2")
    alarms.sql("INSERT INTO events VALUES (99, ?, 3, 't', x'', 0, x'')", SEAT)
    begin = alarms.session_class.begin
    monkeypatch.setattr(
        alarms.session_class,
        "begin",
        lambda self, **how: [row for row in begin(self, **how) if row[1] < 3],
    )
    assert sorted(alarms.run(at=DUE)) == ["ok", "retry"]
    assert alarms.lines()[-1]["error"].startswith("VersionConflict: ")


# A database that does not answer uses up no attempt


def test_a_locked_database_uses_up_no_attempt(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_little_patience(monkeypatch)
    alarms.hold("seat-1")
    claims = alarms.claim(at=DUE)
    with locked(alarms.address):
        alarms.handler.settle(claims)
    assert alarms.lines() == []
    assert alarms.run() == ["ok"]
    assert alarms.lines()[0]["retryCount"] == 0
    assert alarms.handler.counts == {"released": 1, "ok": 1, "lapsed": 0, "parked": 0}


@pytest.mark.parametrize("error_class", [StoreFull, StoreUnavailable])
@pytest.mark.parametrize("times", [1, 2], ids=["the settlement", "its release too"])
def test_a_lost_database_uses_up_no_attempt(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch, error_class: type[Exception], times: int
) -> None:
    alarms.hold("seat-1")
    claims, failures = alarms.claim(at=DUE), [error_class()] * times
    commit = alarms.session_class.commit

    def failing_commit(session: Session) -> None:
        if failures:
            raise failures.pop()
        commit(session)

    monkeypatch.setattr(alarms.session_class, "commit", failing_commit)
    alarms.handler.settle(claims)
    assert alarms.run() == ["ok"]
    assert alarms.lines()[0]["retryCount"] == 0
    assert alarms.handler.counts["released"] == 1


# Leases and outlived claims


def test_an_attempt_counts_from_its_claim_on_whatever_becomes_of_the_process(
    alarms: Alarms,
) -> None:
    alarms.hold("seat-1")
    (claim,) = alarms.claim(at=DUE)
    lease_end, state = alarms.row()
    assert lease_end == DUE + LEASE_MS
    assert (state.attempts, state.token) == (1, claim.slot.token)


def test_a_lapsed_lease_is_claimed_again_and_counted(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    (first,) = alarms.claim(at=DUE)
    assert alarms.claim(at=DUE + LEASE_MS - 1) == []
    (second,) = alarms.claim(at=DUE + LEASE_MS)
    assert alarms.handler.counts["lapsed"] == 1
    assert second.slot.token != first.slot.token
    assert second.retry_count == 1
    alarms.handler.settle([second])
    assert alarms.lines()[0]["outcome"] == "ok"


def test_an_alarm_that_kills_its_process_every_time_is_parked_in_the_end(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    alarms.clock.move_to(DUE)
    for attempts in range(1, MAX_ATTEMPTS + 1):
        assert [claim.slot.attempts for claim in alarms.claim()] == [attempts]
        lease_ms = max(LEASE_MS, retry_delay_ms(attempts))
        alarms.clock.advance(lease_ms - 1)
        assert alarms.claim() == []
        alarms.clock.advance(1)
    assert alarms.claim() == []
    assert alarms.handler.counts == {"lapsed": 6, "parked": 1}
    assert alarms.application.queries.parked(10) == [SEAT]
    assert alarms.application.redrive("seat-1")
    assert alarms.run() == ["ok"]


def test_a_lease_is_at_least_ten_times_what_a_batch_takes_lately() -> None:
    class Slow:
        last_transaction_ms = 2_000.0

        def execute(self, work: object) -> list:
            return []

    writer = Slow()
    handler = AlarmDispatcher(writer, AlarmLog(BytesIO()), lambda execute, error: False)
    claims = [Claim(SEAT, AlarmSlot(DUE), b"")]
    handler.settle(claims)
    assert handler.lease_ms == 20_000
    writer.last_transaction_ms = 1.0
    for _ in range(20):
        handler.settle(claims)
    assert handler.lease_ms == LEASE_MS
    writer.last_transaction_ms = 60_000.0  # the process was frozen, once
    handler.settle(claims)
    assert handler.lease_ms == LEASE_MS


def test_waiting_for_whoever_has_the_lock_makes_no_lease_longer(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    claims = alarms.claim(at=DUE)
    settling = threading.Thread(target=alarms.handler.settle, args=(claims,))
    with locked(alarms.address):
        settling.start()
        time.sleep(0.7)
    settling.join()
    assert [line["outcome"] for line in alarms.lines()] == ["ok"]
    assert alarms.handler.lease_ms == LEASE_MS


def outlived(alarms: Alarms) -> tuple[Claim, tuple]:
    """A claim of seat-1 whose lease has lapsed, and the row as the next claim left it."""
    alarms.hold("seat-1")
    (old,) = alarms.claim(at=DUE)
    alarms.claim(at=DUE + LEASE_MS)
    return old, alarms.row()


def test_an_outlived_claim_that_comes_early_does_not_move_the_newer(alarms: Alarms) -> None:
    old, row = outlived(alarms)
    alarms.clock.move_to(DUE - 1)  # a clock that was set back
    alarms.handler.settle([old])
    assert alarms.lines()[-1]["outcome"] == "rejected"
    assert alarms.row() == row


def test_an_outlived_claim_of_nothing_does_not_delete_the_newer(alarms: Alarms) -> None:
    old, row = outlived(alarms)
    alarms.sql("DELETE FROM events")
    alarms.handler.settle([old])
    assert alarms.lines()[-1]["outcome"] == "rejected"
    assert alarms.row() == row


@pytest.mark.parametrize(("attempts", "outcome"), [(1, "retry"), (MAX_ATTEMPTS, "parked")])
def test_an_outlived_claim_that_fails_neither_moves_nor_parks_the_newer(
    alarms: Alarms, attempts: int, outcome: str
) -> None:
    old, row = outlived(alarms)
    alarms.spoil()
    old = Claim(old.id, AlarmSlot(DUE, attempts, old.slot.token), old.job_state)
    alarms.handler.settle([old])
    assert alarms.lines()[-1]["outcome"] == outcome
    assert alarms.row() == row


def test_an_outlived_claim_that_is_released_does_not_move_the_newer(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, row = outlived(alarms)
    commit, failures = alarms.session_class.commit, [StoreFull()]
    monkeypatch.setattr(
        alarms.session_class, "commit", lambda s: raise_(failures.pop()) if failures else commit(s)
    )
    alarms.handler.settle([old])
    assert alarms.row() == row


def test_an_outlived_claim_may_still_end_its_hold_and_the_newer_finds_it_ended(
    alarms: Alarms,
) -> None:
    old, _ = outlived(alarms)
    (newer,) = alarms.claim(at=DUE + 2 * LEASE_MS)
    alarms.handler.settle([old])
    alarms.handler.settle([newer])
    assert [line["outcome"] for line in alarms.lines()] == ["ok", "rejected"]
    assert check_invariants(alarms.address).counts()["Expired"] == 1


def raise_(error: Exception) -> None:
    raise error


# What the alarm log says


def test_every_attempt_is_one_line_with_all_its_fields(alarms: Alarms) -> None:
    alarms.hold("seat-1")
    repair = alarms.spoil()
    alarms.run(at=DUE + 18)
    repair()
    retry_at, _ = alarms.row()
    alarms.run(at=retry_at + 3)
    common = {
        "event": "reservation-alarm",
        "eventType": "alarm",
        "entrypoint": "Reservation",
        "reservationId": "seat-1",
        "scheduledTime": DUE,
    }
    failed, settled = alarms.lines()
    error = failed.pop("error")
    assert error.startswith("UndecodableEvent: reservation/seat-1 version 1")
    assert failed == common | {
        "isRetry": False,
        "retryCount": 0,
        "outcome": "retry",
        "latenessMs": 18,
    }
    assert settled == common | {
        "isRetry": True,
        "retryCount": 1,
        "outcome": "ok",
        "latenessMs": retry_at + 3 - DUE,
    }
