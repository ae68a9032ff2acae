"""How often a failing alarm is tried, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_expiry.domain.alarm import MAX_ATTEMPTS, next_attempt_at_ms

FAILED_AT = 1_800_000_000_000
ALMOST_ONE = 1 - 2**-53  # the largest number that random() returns

# attempts so far: (the least, the most) milliseconds until the next one
RETRIES = {
    1: (2_000, 2_499),
    2: (4_000, 4_999),
    3: (8_000, 9_999),
    4: (16_000, 19_999),
    5: (32_000, 39_999),
    6: (64_000, 79_999),
}


@pytest.mark.parametrize("attempts", RETRIES)
def test_each_retry_waits_twice_as_long_and_up_to_a_quarter_more(attempts: int) -> None:
    least, most = RETRIES[attempts]
    assert next_attempt_at_ms(attempts, FAILED_AT, 0.0) == FAILED_AT + least
    assert next_attempt_at_ms(attempts, FAILED_AT, 0.5) == FAILED_AT + least * 9 // 8
    assert next_attempt_at_ms(attempts, FAILED_AT, ALMOST_ONE) == FAILED_AT + most


@pytest.mark.parametrize("attempts", [7, 8, 1_000])
@pytest.mark.parametrize("random", [0.0, ALMOST_ONE])
def test_after_one_attempt_and_six_retries_there_is_no_next_one(
    attempts: int, random: float
) -> None:
    assert next_attempt_at_ms(attempts, FAILED_AT, random) is None


def test_seven_attempts_are_all_there_are() -> None:
    assert len(RETRIES) + 1 == MAX_ATTEMPTS


@given(
    attempts=st.integers(1, 6),
    failed_at_ms=st.integers(1, 2**53 - 1),
    random=st.floats(0, 1, exclude_max=True),
)
def test_the_wait_is_whole_milliseconds_between_the_delay_and_a_quarter_more(
    attempts: int, failed_at_ms: int, random: float
) -> None:
    at_ms = next_attempt_at_ms(attempts, failed_at_ms, random)
    delay_ms = 1_000 * 2**attempts
    assert type(at_ms) is int
    assert delay_ms <= at_ms - failed_at_ms <= delay_ms * 5 // 4
