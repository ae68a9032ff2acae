"""Cron's next time against one that tries every minute, by the documented rules.

The oracle has an expression as sets of minutes, hours, days, and walks: the instants that go
by, or the minutes of the days as a clock on the wall shows them. It shares no code with
`cron.py`. Hypothesis puts the searches where clocks are put forward or back.
"""

import calendar
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.infrastructure.instants import datetime_of_ms, ms_of_datetime
from reservation_expiry.infrastructure.objects.cron import next_by_cron

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SEARCHED = 2 * DAY

NEW_YORK, LORD_HOWE = "America/New_York", "Australia/Lord_Howe"
ZONES = [
    *(NEW_YORK, LORD_HOWE, "Europe/Brussels", "Asia/Kathmandu", "Africa/Casablanca", "UTC"),
    *("Pacific/Apia", "America/Caracas", "Asia/Pyongyang", "Antarctica/Troll", "Africa/Monrovia"),
    *("Pacific/Kwajalein", "Africa/Freetown", "Europe/Dublin", "America/St_Johns", "Asia/Gaza"),
    *("Pacific/Chatham", "America/Santiago", "Africa/Cairo", "America/Nuuk"),
]


@dataclass(frozen=True)
class Field:
    """What a field is written as, and which values it lets pass."""

    text: str
    values: frozenset[int]

    @property
    def starred(self) -> bool:
        return self.text.startswith("*")


def field(low: int, high: int) -> st.SearchStrategy[Field]:
    """`*`, `*/n`, `a`, `a-b`, `a-b/n`, `a/n`, and lists of these."""
    values, steps = st.integers(low, high), st.integers(1, high - low + 3)
    starred = st.one_of(
        st.just(Field("*", frozenset(range(low, high + 1)))),
        steps.map(lambda n: Field(f"*/{n}", frozenset(range(low, high + 1, n)))),
    )
    spans = st.tuples(values, values).map(sorted)
    plain = st.one_of(
        values.map(lambda a: Field(f"{a}", frozenset([a]))),
        spans.map(lambda s: Field(f"{s[0]}-{s[1]}", frozenset(range(s[0], s[1] + 1)))),
        st.tuples(spans, steps).map(
            lambda s: Field(
                f"{s[0][0]}-{s[0][1]}/{s[1]}", frozenset(range(s[0][0], s[0][1] + 1, s[1]))
            )
        ),
        st.tuples(values, steps).map(
            lambda s: Field(f"{s[0]}/{s[1]}", frozenset(range(s[0], high + 1, s[1])))
        ),
    )
    lists = st.lists(plain, min_size=1, max_size=3).map(
        lambda parts: Field(
            ",".join(p.text for p in parts), frozenset().union(*(p.values for p in parts))
        )
    )
    return st.one_of(starred, lists, lists)


@cache
def changes(zone: str) -> list[datetime]:
    """Some instants at which the zone's offset changes: long ago, now, and far ahead."""
    tz, found = ZoneInfo(zone), []
    for first, last in ((1900, 1976), (2009, 2032), (2086, 2090)):
        at, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
        while at < end:
            then = at + DAY
            if at.astimezone(tz).utcoffset() != then.astimezone(tz).utcoffset():
                found.append(at)
            at = then
    return found or [datetime(2026, 11, 1, tzinfo=UTC)]


@st.composite
def searches(draw: st.DrawFn) -> tuple[str, datetime]:
    """(zone, a time within two days of a change of its clocks, or near the end of a year)."""
    zone = draw(st.sampled_from(ZONES))
    near = draw(st.sampled_from(changes(zone)))
    if draw(st.integers(0, 9)) == 0:
        near = datetime(near.year, 12, 31, tzinfo=UTC)
    return zone, near + draw(st.integers(-2 * 86_400_000, 2 * 86_400_000)) * timedelta(
        milliseconds=1
    )


def wall(at: datetime, tz: tzinfo) -> datetime:
    return at.astimezone(tz).replace(tzinfo=None, fold=0)


def real_times(tz: tzinfo, after: datetime, matches: Callable[..., bool]) -> Iterator[datetime]:
    """Each whole minute of the clock that goes by behind `after`, if it matches."""
    seconds = wall(after, tz).second  # an odd offset of long ago has seconds of its own
    at = after.replace(microsecond=0) - timedelta(seconds=seconds)
    while at < after + SEARCHED:
        at += MINUTE
        shown = wall(at, tz)
        if shown.second:  # it has changed by seconds meanwhile
            at += timedelta(seconds=60 - shown.second)
            shown = wall(at, tz)
        if at > after and matches(shown):
            yield at


def times_of_day(tz: tzinfo, after: datetime, matches: Callable[..., bool]) -> Iterator[datetime]:
    """Each minute of a few days that matches, as the one instant that it is."""
    first = datetime.combine(wall(after, tz).date() - DAY, datetime.min.time())
    for minute in range((SEARCHED + 2 * DAY) // MINUTE):
        at = first + minute * MINUTE
        if matches(at):
            while wall(at.replace(tzinfo=tz).astimezone(UTC), tz) != at:
                at += MINUTE
            instant = at.replace(tzinfo=tz).astimezone(UTC)
            if instant > after:
                yield instant


def by_brute_force(fields: list[Field], zone: str, after: datetime) -> datetime | None:
    """The next time within SEARCHED, of an expression for every day."""
    minutes, hours = fields
    by_the_hour = minutes.starred or hours.starred
    walk = real_times if by_the_hour else times_of_day
    tz = UTC if zone == "UTC" else ZoneInfo(zone)
    found = walk(tz, after, lambda t: t.minute in minutes.values and t.hour in hours.values)
    return next(found, None)


def asked(expression: str, zone: str, after: datetime) -> datetime:
    return datetime_of_ms(next_by_cron(expression, zone, ms_of_datetime(after)))


def fixed(text: str, *values: int) -> Field:
    return Field(text, frozenset(values))


AT_0145 = (fixed("45", 45), fixed("1", 1))
ONE_MINUTE_STEPPED = (fixed("07-7/2", 7), fixed("*", *range(24)))
EVERY_FOUR_HOURS = (fixed("0", 0), fixed("*/4", 0, 4, 8, 12, 16, 20))


@settings(max_examples=250, deadline=None)
@given(fields=st.tuples(field(0, 59), field(0, 23)), search=searches())
@example(fields=ONE_MINUTE_STEPPED, search=("UTC", datetime(2026, 11, 1, 6, 10, tzinfo=UTC)))
@example(fields=AT_0145, search=(NEW_YORK, datetime(2026, 11, 1, 6, 10, tzinfo=UTC)))
@example(fields=EVERY_FOUR_HOURS, search=(LORD_HOWE, datetime(2026, 10, 3, 14, tzinfo=UTC)))
@example(fields=EVERY_FOUR_HOURS, search=(LORD_HOWE, datetime(2026, 4, 4, 14, tzinfo=UTC)))
def test_f41_the_next_time_of_day_is_the_one_that_brute_force_finds(
    fields: tuple[Field, Field], search: tuple[str, datetime]
) -> None:
    zone, after = search
    after = datetime_of_ms(ms_of_datetime(after))
    found = asked(f"{fields[0].text} {fields[1].text} * * *", zone, after)
    assert found > after
    expected = by_brute_force(list(fields), zone, after)
    if expected is not None:
        assert found == expected
    else:
        assert found > after + SEARCHED - DAY


def test_f41_a_time_that_has_come_a_second_time_today_is_tomorrows() -> None:
    after = datetime(2026, 11, 1, 6, 10, tzinfo=UTC)
    assert asked("45 1 * * *", NEW_YORK, after) == datetime(2026, 11, 2, 6, 45, tzinfo=UTC)


def test_f41_half_an_hour_that_is_skipped_takes_no_whole_hour_with_it() -> None:
    at, hours = datetime(2026, 10, 3, 10, 0, tzinfo=UTC), []
    for _ in range(4):
        at = asked("0 */4 * * *", LORD_HOWE, at)
        hours.append(wall(at, ZoneInfo(LORD_HOWE)).strftime("%d %H:%M"))
    assert hours == ["04 00:00", "04 04:00", "04 08:00", "04 12:00"]


@settings(max_examples=300, deadline=None)
@given(
    zone=st.sampled_from(sorted(available_timezones())),
    after=st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    expression=st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)),
)
def test_f41_the_next_time_is_later_than_now_in_every_zone_and_expression(
    zone: str, after: datetime, expression: tuple[Field, ...]
) -> None:
    after = datetime_of_ms(ms_of_datetime(after))
    try:
        assert asked(" ".join(f.text for f in expression), zone, after) > after
    except InvalidSchedule as error:
        assume("no next time" not in str(error) and "Bad day-of-month" not in str(error))


# Days, each tried by itself: cronsim's calendar, with what its fields mean written out.


def last_of(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def is_last_working_day(day: date) -> bool:
    later = [day + n * DAY for n in range(1, last_of(day) - day.day + 1)]
    return day.weekday() < 5 and all(d.weekday() >= 5 for d in later)


Rule = Callable[[date], bool]
DAYS: dict[str, Rule] = {
    "*": lambda d: True,
    "*/2": lambda d: d.day % 2 == 1,
    "1": lambda d: d.day == 1,
    "29": lambda d: d.day == 29,
    "31": lambda d: d.day == 31,
    "28-31": lambda d: d.day >= 28,
    "1,15": lambda d: d.day in (1, 15),
    "L": lambda d: d.day == last_of(d),
    "LW": is_last_working_day,
}
MONTHS: dict[str, Rule] = {
    "*": lambda d: True,
    "2": lambda d: d.month == 2,
    "JAN,dec": lambda d: d.month in (1, 12),
    "*/3": lambda d: d.month in (1, 4, 7, 10),
}
WEEKDAYS: dict[str, Rule] = {
    "*": lambda d: True,
    "1-5": lambda d: d.weekday() < 5,
    "0": lambda d: d.weekday() == 6,
    "7": lambda d: d.weekday() == 6,
    "sun,WED": lambda d: d.weekday() in (6, 2),
    "5L": lambda d: d.weekday() == 4 and d.day + 7 > last_of(d),
    "MON#1": lambda d: d.weekday() == 0 and d.day <= 7,
    "4#5": lambda d: d.weekday() == 3 and d.day > 28,
}


@settings(max_examples=300, deadline=None)
@given(
    days=st.sampled_from(sorted(DAYS)),
    months=st.sampled_from(sorted(MONTHS)),
    weekdays=st.sampled_from(sorted(WEEKDAYS)),
    after=st.dates(date(1999, 1, 1), date(2105, 1, 1)),
)
@example(days="29", months="2", weekdays="*", after=date(2028, 2, 29))
@example(days="29", months="2", weekdays="*", after=date(2096, 2, 29))  # 2100 has none
@example(days="L", months="2", weekdays="*", after=date(2027, 12, 31))
@example(days="*", months="2", weekdays="4#5", after=date(2024, 2, 29))
def test_f41_the_next_day_is_the_one_that_brute_force_finds(
    days: str, months: str, weekdays: str, after: date
) -> None:
    either = not days.startswith("*") and not weekdays.startswith("*")
    join = any if either else all  # Debian's rule: a star makes it "and"

    def matches(day: date) -> bool:
        return MONTHS[months](day) and join((DAYS[days](day), WEEKDAYS[weekdays](day)))

    day = after + DAY
    while not matches(day):
        day += DAY
        assume(day < after + 15_000 * DAY)
    noon = datetime(after.year, after.month, after.day, 12, tzinfo=UTC)
    found = asked(f"0 12 {days} {months} {weekdays}", "UTC", noon)
    assert found.date() == day


@settings(max_examples=500, deadline=None)
@given(text=st.text("0123456789*,-/#LWlwSUNmonJan ", max_size=24), zone=st.sampled_from(ZONES))
def test_any_text_is_an_expression_or_is_refused_with_a_sentence(text: str, zone: str) -> None:
    try:
        found = next_by_cron(text, zone, 1_800_000_000_000)
    except InvalidSchedule as error:
        sentence = str(error)
    else:
        assert found > 1_800_000_000_000
        return
    assert "cron expression" in sentence or "no next time" in sentence


@pytest.mark.parametrize("content", [b"", b"TZif", b"TZif2" + b"\0" * 39, b"TZif2" + b"\xff" * 60])
def test_a_zone_whose_file_is_damaged_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "Odd").mkdir()
    (tmp_path / "Odd" / "Place").write_bytes(content)
    zoneinfo.reset_tzpath([str(tmp_path)])
    try:
        with pytest.raises(InvalidSchedule, match="is not a time zone"):
            next_by_cron("0 9 * * *", "Odd/Place", 0)
    finally:
        zoneinfo.reset_tzpath()
