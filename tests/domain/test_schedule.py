"""How a scheduled event goes on after each run."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_expiry.domain.alarm import MAX_ATTEMPTS
from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.schedule import (
    MAX_RUN_AT_MS,
    MIN_REPEAT_MS,
    Progress,
    ended_well,
    failed,
    next_run,
    redriven,
)

NOW = 1_800_000_000_000
PLANNED = Progress(1, NOW, NOW)


def hourly(planned_ms: int) -> tuple[int, int]:
    return next_run(planned_ms, 3_600_000, NOW)


def nowhere(planned_ms: int) -> tuple[int, int]:
    raise InvalidSchedule("'Mars/Olympus' is not a time zone")


def given_up(progress: Progress, next_time: object) -> tuple[Progress, list[str]]:
    outcomes = []
    for _ in range(MAX_ATTEMPTS):
        progress, outcome = failed(progress, next_time, NOW, 0.5)
        outcomes.append(outcome)
    return progress, outcomes


def test_an_event_that_is_planned_once_is_done_when_it_has_run() -> None:
    assert ended_well(PLANNED, None) is None


def test_one_that_recurs_is_planned_anew_and_counted() -> None:
    after = ended_well(replace(PLANNED, attempts=3, company=1), hourly)
    later = NOW + 3_600_000
    assert after == Progress(1, later, later, runs=1)


def test_f37_giving_up_a_planned_time_is_not_giving_up_the_recurrence() -> None:
    after, outcomes = given_up(PLANNED, hourly)
    assert outcomes == ["failed"] * 6 + ["gave-up"]
    later = NOW + 3_600_000
    assert after == Progress(1, later, later, gave_up=1)


def test_one_that_is_planned_once_is_parked_when_it_is_given_up() -> None:
    after, _ = given_up(PLANNED, None)
    assert (after.parked, after.look_at_ms, after.run_at_ms) == (True, None, NOW)
    assert (after.attempts, after.gave_up) == (7, 1)


def test_f36_where_there_is_no_next_time_the_run_counts_and_the_reason_is_kept() -> None:
    after = ended_well(PLANNED, nowhere)
    assert after is not None
    assert (after.runs, after.attempts, after.parked) == (1, 0, True)
    assert (after.run_at_ms, after.look_at_ms) == (None, None)
    assert after.next_problem == "'Mars/Olympus' is not a time zone"


def test_f36_so_it_is_where_the_last_attempt_failed() -> None:
    after, outcomes = given_up(PLANNED, nowhere)
    assert (outcomes[-1], after.gave_up, after.attempts) == ("gave-up", 1, 0)
    assert after.next_problem is not None


def test_an_attempt_that_ended_with_its_process_is_counted_and_told_apart() -> None:
    after, outcome = failed(PLANNED, hourly, NOW, 0.0, interrupted=True)
    assert (outcome, after.attempts, after.company) == ("interrupted", 1, 1)
    assert after.look_at_ms == NOW + 2_000


def test_a_fresh_start_is_now_or_at_the_next_time() -> None:
    parked, _ = given_up(PLANNED, None)
    assert redriven(parked, None, NOW + 5).look_at_ms == NOW + 5
    lost = ended_well(PLANNED, nowhere)
    assert lost is not None
    found = redriven(lost, hourly, NOW)
    assert (found.run_at_ms, found.parked, found.next_problem) == (NOW + 3_600_000, False, None)
    with pytest.raises(InvalidSchedule, match="Mars"):
        redriven(lost, nowhere, NOW)


@given(
    planned_ms=st.integers(1, MAX_RUN_AT_MS),
    repeat_ms=st.integers(MIN_REPEAT_MS, 366 * 86_400_000),
    now_ms=st.integers(1, MAX_RUN_AT_MS),
)
def test_the_next_time_is_later_than_now_and_whole_periods_away_or_there_is_none(
    planned_ms: int, repeat_ms: int, now_ms: int
) -> None:
    try:
        run_at_ms, missed = next_run(planned_ms, repeat_ms, now_ms)
    except InvalidSchedule:
        assert max(planned_ms, now_ms) + repeat_ms > MAX_RUN_AT_MS
        return
    assert run_at_ms > now_ms
    assert run_at_ms == planned_ms + (missed + 1) * repeat_ms
    assert missed == 0 or run_at_ms - repeat_ms <= now_ms
