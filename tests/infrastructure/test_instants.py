"""Milliseconds, datetimes and float seconds: from one to another and back, to the millisecond."""

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_expiry.api.cli.common import Instant, instant
from reservation_expiry.infrastructure.instants import (
    EPOCH,
    datetime_of_ms,
    ms_of_datetime,
    ms_of_seconds,
)
from reservation_expiry.infrastructure.objects.alarm_time import MAX_ALARM_MS, alarm_time_ms

IN_2039 = datetime(2039, 8, 27, 15, 19, 59, 923_000, UTC)
alarm_times = st.integers(0, MAX_ALARM_MS)
offsets = st.integers(-1_439, 1_439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def test_f45_a_datetime_is_the_millisecond_it_says() -> None:
    assert alarm_time_ms(IN_2039, 0) == 2_198_071_199_923
    assert int(IN_2039.timestamp() * 1000) == 2_198_071_199_922  # the way that is not taken


def test_f45_the_command_line_takes_and_shows_the_millisecond_it_is_told() -> None:
    said = Instant().convert("2039-08-27T15:19:59.923Z", None, None)
    assert said == 2_198_071_199_923
    assert instant(said) == "2039-08-27T15:19:59.923Z"


@given(at_ms=st.integers(-(10**13), 2 * 10**14), zone=offsets)
def test_f45_a_datetime_gives_the_milliseconds_it_was_made_of_in_every_zone(
    at_ms: int, zone: timezone
) -> None:
    assert ms_of_datetime(datetime_of_ms(at_ms).astimezone(zone)) == at_ms


@given(at=st.datetimes(timezones=st.timezones()))
def test_f45_a_datetimes_microseconds_are_cut_off_and_nothing_else(at: datetime) -> None:
    microseconds = (at - EPOCH) // timedelta(microseconds=1)
    assert ms_of_datetime(at) == microseconds // 1000


@given(at_ms=alarm_times)
def test_f45_the_seconds_of_an_alarms_row_are_exact_over_all_times_it_can_be_set_to(
    at_ms: int,
) -> None:
    assert ms_of_seconds(at_ms / 1000) == at_ms
    # Comparing rows by their seconds is comparing them by their milliseconds.
    assert at_ms / 1000 < (at_ms + 1) / 1000


def test_f45_the_error_of_those_seconds_stays_far_below_half_a_millisecond() -> None:
    """Why the property above holds everywhere: a double is off by half its last bit at most,
    and twice (the division, the multiplication) the last bit at the largest time is 4 us."""
    last_bit = Fraction(2) ** (MAX_ALARM_MS.bit_length() - 53)
    assert 2 * last_bit < Fraction(1, 2)


def test_a_time_beyond_the_calendar_is_shown_as_its_number() -> None:
    assert instant(2**53) == f"{2**53} ms"
    assert instant(MAX_ALARM_MS) == "2262-04-11T23:47:16.854Z"


@pytest.mark.parametrize("text", ["\u00b2" * 10, "\u0661" * 10])
def test_digits_that_are_no_number_are_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(Exception, match="is not a time"):
        Instant().convert(text, None, None)
