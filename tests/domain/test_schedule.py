"""The planned times of what recurs every so often."""

from hypothesis import given
from hypothesis import strategies as st

from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.schedule import MAX_RUN_AT_MS, MIN_REPEAT_MS, next_run


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
