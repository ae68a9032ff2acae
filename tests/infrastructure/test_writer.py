"""The writer: many commands in one commit, each with its own fate, none told too soon."""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from reservation_expiry.domain.errors import InvalidTtl
from reservation_expiry.domain.events import Held
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure import writer as writer_module
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import ExpireReservation
from reservation_expiry.infrastructure.errors import (
    ForkedProcess,
    StoreStopped,
    StoreUnavailable,
    VersionConflict,
)
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.writer import Writer
from tests.support.clock import ManualClock
from tests.support.invariants import check_invariants
from tests.support.writers import (
    PATIENCE_SECONDS,
    Bench,
    Busy,
    CountingSession,
    Fails,
    hold,
    in_background,
    results,
)

# Many commands, one commit


def test_all_that_waits_is_written_with_one_commit(bench: Bench) -> None:
    futures = bench.batch(*(hold(f"seat-{number}") for number in range(30)))
    assert [state.name for state in results(futures)] == [f"seat-{n}" for n in range(30)]
    assert bench.session.commits == 2  # one for what kept it busy, one for the thirty
    assert bench.invariants().counts() == {"Held": 30, "AlarmScheduled": 30}


def test_threads_that_hold_at_once_share_commits(bench: Bench) -> None:
    def hold_ten(caller: int) -> None:
        for number in range(10):
            bench.writer.execute(hold(f"seat-{caller}-{number}"))

    results([in_background(partial(hold_ten, caller)) for caller in range(32)])
    assert bench.session.commits < 320
    assert bench.invariants().counts()["Held"] == 320


def test_a_batch_takes_no_more_than_its_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "BATCH_LIMIT", 4)
    results(bench.batch(*(hold(f"seat-{number}") for number in range(10))))
    assert bench.session.commits == 1 + 3


# Nobody hears of it before the commit


def test_there_is_no_reply_before_the_commit(bench: Bench) -> None:
    replied, replied_before_commit = threading.Event(), []
    bench.session.before_commit = lambda: replied_before_commit.append(replied.wait(0.1))
    reply = bench.hand_in(hold("seat-1"))
    reply.add_done_callback(lambda future: replied.set())
    assert reply.result(PATIENCE_SECONDS).status == "held"
    assert replied_before_commit == [False]


def test_a_commit_that_fails_fails_all_its_commands_and_leaves_nothing(bench: Bench) -> None:
    def fail() -> None:
        raise StoreUnavailable("no disk")

    busy = Busy()
    first = bench.hand_in(busy)
    assert busy.has_begun.wait(PATIENCE_SECONDS)
    futures = [bench.hand_in(hold("seat-1")), bench.hand_in(hold("seat-2"))]
    bench.session.before_commit = lambda: setattr(bench.session, "before_commit", fail)
    busy.may_end.set()
    assert [type(future.exception(PATIENCE_SECONDS)) for future in (first, *futures)] == [
        type(None),
        StoreUnavailable,
        StoreUnavailable,
    ]
    assert isinstance(bench.writer.last_error, StoreUnavailable)
    assert bench.invariants().counts() == {}
    bench.session.before_commit = lambda: None
    assert bench.writer.execute(hold("seat-1")).version == 2
    assert bench.writer.last_error is None


# One bad command


BAD_WORK = {
    "a command that the rules refuse": (hold("seat-9", 4), InvalidTtl),
    "a command with a bug": (Fails(ZeroDivisionError()), ZeroDivisionError),
    "work on the tables with a bug": (Fails(KeyError(), on_tables=True), KeyError),
    "work on the tables that conflicts": (
        Fails(VersionConflict(), on_tables=True),
        VersionConflict,
    ),
}


def test_what_was_decided_and_not_committed_is_handed_to_nobody(bench: Bench) -> None:
    """The work has a result by then; only the error is told."""

    def fail() -> None:
        raise StoreUnavailable("no disk")

    told: list[tuple[object, BaseException | None]] = []
    ended = threading.Event()
    bench.session.before_commit = fail
    bench.writer.submit(hold("seat-1"), lambda *outcome: (told.append(outcome), ended.set()))
    assert ended.wait(PATIENCE_SECONDS)
    ((result, error),) = told
    assert result is None
    assert isinstance(error, StoreUnavailable)


@pytest.mark.parametrize("kind", BAD_WORK)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_its_batch_mates_are_none_the_worse_for(kind: str, place: int, bench: Bench) -> None:
    bad, error_class = BAD_WORK[kind]
    works = [hold("seat-1"), hold("seat-2")]
    futures = bench.batch(*works[:place], bad, *works[place:])
    assert isinstance(futures.pop(place).exception(), error_class)
    assert [state.name for state in results(futures)] == ["seat-1", "seat-2"]
    assert bench.invariants().counts() == {"Held": 2, "AlarmScheduled": 2}


class BlindSession(CountingSession):
    """Does not see what is in the log of `seat-9`, as if it were written just now."""

    def tails(self, aggregate_ids: Sequence[str]) -> list[tuple[str, int, str, bytes]]:
        return [row for row in super().tails(aggregate_ids) if row[0] != "reservation/seat-9"]


def test_a_conflict_in_the_log_fails_only_the_command_that_meets_it(database_path: Path) -> None:
    connection = sqlite3.connect(database_path, isolation_level=None)
    connection.execute("INSERT INTO events VALUES (99, 'reservation/seat-9', 1, 't', x'', 0, x'')")
    connection.close()
    bench = Bench(database_path, BlindSession)
    try:
        before, bad, after = bench.batch(hold("seat-1"), hold("seat-9"), hold("seat-2"))
        assert isinstance(bad.exception(), VersionConflict)
        assert [state.version for state in results([before, after])] == [2, 2]
        queries = Queries(bench.database)
        assert queries.head().position == 4
        assert [row.name for row in queries.reservations(limit=9)] == ["seat-1", "seat-2"]
    finally:
        bench.close()


# One id, many commands


def test_two_holds_of_one_id_in_one_batch_are_both_honoured(bench: Bench) -> None:
    first, second = results(bench.batch(hold("seat-1", 60), hold("seat-1", 5)))
    assert (first.version, first.expires_at_ms - first.created_at_ms) == (2, 60_000)
    assert (second.version, second.expires_at_ms - second.created_at_ms) == (4, 5_000)
    log = bench.invariants()
    assert log.topics("seat-1") == ["Held", "AlarmScheduled"] * 2
    assert log.states["seat-1"] == second


def test_commands_of_one_batch_see_what_those_before_them_decided(bench: Bench) -> None:
    late = ManualClock().now_ms() + 60_000
    works = (hold("seat-1"), *(ExpireReservation("reservation/seat-1", late) for _ in range(2)))
    _, (first, changed), (second, changed_again), again = results(
        bench.batch(*works, hold("seat-1"))
    )
    assert (changed, changed_again) == (True, False)
    assert first == second
    assert first.status == "expired"
    assert bench.invariants().states["seat-1"] == again


def test_32_threads_that_hold_one_id_ten_times_all_succeed(
    application: ReservationApplication, database_path: Path
) -> None:
    """F20: deciding under the write lock leaves nothing to conflict."""
    start = threading.Barrier(32)

    def hold_ten() -> list[Reservation]:
        start.wait(PATIENCE_SECONDS)
        return [application.hold("seat-1", 60) for _ in range(10)]

    held = results([in_background(hold_ten) for _ in range(32)])
    assert sorted(state.version for ten in held for state in ten) == list(range(2, 641, 2))
    events = check_invariants(database_path).events["seat-1"]
    assert [event.originator_version for event in events] == list(range(1, 641))
    assert sum(type(event) is Held for event in events) == 320


# Stopping


def test_stop_finishes_what_was_handed_in_and_takes_no_more(bench: Bench) -> None:
    busy = Busy()
    bench.hand_in(busy)
    assert busy.has_begun.wait(PATIENCE_SECONDS)
    futures = [bench.hand_in(hold(f"seat-{number}")) for number in range(3)]
    stopping = bench.stop_soon()
    with pytest.raises(StoreStopped):
        bench.writer.execute(hold("seat-9"))
    assert not stopping.done()
    busy.may_end.set()
    assert [state.version for state in results(futures)] == [2, 2, 2]
    stopping.result(PATIENCE_SECONDS)
    with pytest.raises(StoreStopped):
        bench.writer.execute(hold("seat-9"))
    assert bench.invariants().counts()["Held"] == 3


def test_stop_may_be_called_twice_and_before_any_start(bench: Bench) -> None:
    bench.writer.stop()
    bench.writer.stop()
    Writer(lambda: bench.session, EventMapper(), ManualClock()).stop()


# F30: fork


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_is_refused_and_its_parent_goes_on(
    application: ReservationApplication, database_path: Path
) -> None:
    application.hold("seat-1", 60)
    uses = [
        lambda: application.hold("seat-2", 60),
        lambda: application.expire("seat-1", 1),
        lambda: application.get("seat-1"),
        lambda: application.start(alarms=False),
    ]
    child = os.fork()
    if child == 0:
        os._exit(how_many_are_not_refused(uses))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert application.hold("seat-3", 60).version == 2
    assert application.get("seat-1").status == "held"
    assert set(check_invariants(database_path).events) == {"seat-1", "seat-3"}


def how_many_are_not_refused(uses: Sequence[Callable[[], object]]) -> int:
    """For the child: it must neither hang nor find its way back into pytest."""
    signal.alarm(int(PATIENCE_SECONDS))
    refused = 0
    try:
        for use in uses:
            try:
                use()
            except ForkedProcess:
                refused += 1
    except BaseException:
        return 99
    return len(uses) - refused
