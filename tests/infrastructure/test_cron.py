"""Cron expressions, and what they do when the clocks are changed."""

from datetime import UTC, datetime

import pytest

from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.scheduled_entry import next_run_by_cron
from reservation_expiry.infrastructure.objects.cron import next_by_cron

BRUSSELS, NEW_YORK = "Europe/Brussels", "America/New_York"


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def times(expression: str, zone: str, after: str, count: int) -> list[str]:
    at_ms, found = ms(after), []
    for _ in range(count):
        at_ms = next_by_cron(expression, zone, at_ms)
        found.append(datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%m-%d %H:%M"))
    return found


CASES = {
    "every day at nine, in winter and then summer time": (
        ("0 9 * * *", BRUSSELS, "2026-03-28T00:00+01:00"),
        ["03-28 08:00", "03-29 07:00", "03-30 07:00"],
    ),
    "a time that is skipped runs at the end of the gap": (
        ("30 2 * * *", BRUSSELS, "2026-03-28T12:00+01:00"),
        ["03-29 01:00", "03-30 00:30"],
    ),
    "a time that comes twice runs the first time": (
        ("30 2 * * *", BRUSSELS, "2026-10-24T12:00+02:00"),
        ["10-25 00:30", "10-26 01:30"],
    ),
    "what runs every half hour runs through the hour that comes twice": (
        ("*/30 * * * *", BRUSSELS, "2026-10-25T01:45+02:00"),
        ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"],
    ),
    "... and skips no half hour in the gap": (
        ("*/30 * * * *", BRUSSELS, "2026-03-29T01:15+01:00"),
        ["03-29 00:30", "03-29 01:00", "03-29 01:30"],
    ),
    "the gap in New York": (
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00-05:00"),
        ["03-08 07:00", "03-09 06:30"],
    ),
    "the overlap in New York": (
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00-04:00"),
        ["11-01 05:30", "11-02 06:30"],
    ),
    "working days": (
        ("0 9 * * 1-5", "UTC", "2026-11-27T09:00+00:00"),
        ["11-30 09:00", "12-01 09:00"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test(case: str) -> None:
    (expression, zone, after), expected = CASES[case]
    assert times(expression, zone, after, len(expected)) == expected


def test_passed_times_are_counted_and_run_once() -> None:
    planned, now = ms("2026-11-01T09:00+00:00"), ms("2026-11-04T12:00+00:00")
    found = next_run_by_cron("0 9 * * *", "UTC", planned, now, next_by_cron)
    assert found == (ms("2026-11-05T09:00+00:00"), 3)


def test_no_more_passed_times_are_counted_than_a_thousand() -> None:
    planned, now = ms("2026-01-01T00:00+00:00"), ms("2026-11-04T12:00:30+00:00")
    at_ms, missed = next_run_by_cron("* * * * *", "UTC", planned, now, next_by_cron)
    assert (at_ms, missed) == (ms("2026-11-04T12:01+00:00"), 1_000)


@pytest.mark.parametrize(
    ("expression", "zone", "sentence"),
    [
        ("61 * * * *", "UTC", "is not a cron expression: Bad minute"),
        ("* * *", "UTC", "is not a cron expression"),
        (7, "UTC", "a cron expression is text"),
        ("* " * 200, "UTC", "at most 255 characters"),
        ("* * * * * *", "UTC", "it has five fields"),
        ("0 0 30 2 *", "UTC", "cron expression|no next time"),
        ("0 0 * * *", "Mars/Olympus", "is not a time zone"),
        ("0 0 * * *", "../etc/passwd", "is not a time zone"),
        ("0 0 * * *", None, "is not a time zone"),
    ],
)
def test_what_is_refused(expression: object, zone: object, sentence: str) -> None:
    with pytest.raises(InvalidSchedule, match=sentence):
        next_by_cron(expression, zone, 0)
