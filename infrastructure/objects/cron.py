"""When by a cron expression: five fields, in a time zone, summer time included.

`cronsim` says which times of day match, knowing nothing of zones; what happens where clocks
are put forward or back is said here, and is the rule of Debian's cron: a time of day that is
skipped runs at the end of the gap, one that comes twice runs the first time; an expression
with `*` in its hours or minutes goes by the real hours, so it runs through both. (cronsim's
own way with zones gives times that have passed, and loses some where an hour is cut in two.)
"""

import re
import struct
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS

from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.schedule import MAX_RUN_AT_MS
from reservation_expiry.infrastructure.instants import datetime_of_ms, ms_of_datetime

MAX_CHARACTERS = 255

# cronsim takes a range of one value with a step, `5-5/2`, for `5/2`, which goes on to the end.
_STEPPED_RANGE = re.compile(r"([^,/-]+)-([^,/-]+)/0*[1-9][0-9]*(?=,|$)")
_NUMBERS = {name: str(number) for number, name in enumerate(SYMBOLIC_DAYS)} | {
    name: str(number) for number, name in enumerate(SYMBOLIC_MONTHS, start=1)
}

DAY, MINUTE, SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)


def next_by_cron(expression: str, zone: str, after_ms: int) -> int:
    """The first time behind `after_ms`, in Unix milliseconds.

    Raises InvalidSchedule for an expression or a zone that is none, or has no next time.
    """
    if not isinstance(expression, str) or len(expression) > MAX_CHARACTERS:
        raise InvalidSchedule(f"a cron expression is text of at most {MAX_CHARACTERS} characters")
    fields = expression.split()
    if len(fields) != 5:
        raise InvalidSchedule(f"{expression!r} is not a cron expression: it has five fields")
    by_the_hour = fields[0].startswith("*") or fields[1].startswith("*")
    find = _next_real_time if by_the_hour else _next_time_of_day
    plain = " ".join(_STEPPED_RANGE.sub(_without_step, field) for field in fields)
    try:
        at = find(plain, _zone(zone), datetime_of_ms(after_ms).replace(microsecond=0))
    except CronSimError as error:
        raise InvalidSchedule(f"{expression!r} is not a cron expression: {error}") from error
    except (StopIteration, OverflowError, ValueError) as error:
        raise InvalidSchedule(f"{expression!r} has no next time") from error
    at_ms = ms_of_datetime(at)
    if at_ms > MAX_RUN_AT_MS:
        raise InvalidSchedule(f"{expression!r} has no next time before 2262")
    return at_ms


def _without_step(found: re.Match[str]) -> str:
    """A stepped range as it is, or its one value if it has no more."""
    first, last = (_NUMBERS.get(end.upper(), end.lstrip("0")) for end in found.groups())
    return found[1] if first == last else found[0]


def _next_time_of_day(expression: str, zone: tzinfo, after: datetime) -> datetime:
    """By the clock on the wall, each of whose times is one instant.

    A later time of day is never an earlier instant, so the first that lies behind `after` is
    the next. Those that `after` shows once more, where clocks go back, are passed over.
    """
    for wall in CronSim(expression, _wall(zone, after)):
        at = wall.replace(tzinfo=zone)
        while _wall(zone, at.astimezone(UTC)) != at.replace(tzinfo=None):
            at += MINUTE  # in a gap
        if at.astimezone(UTC) > after:
            return at
    raise StopIteration  # as cronsim itself does where it has looked for 50 years


def _next_real_time(expression: str, zone: tzinfo, after: datetime) -> datetime:
    """By the time that goes by, of which each minute shows one time of day.

    Between two changes of the clocks both go at one pace; where a change comes first, the
    search goes on from it, with what the clock shows then.
    """
    since, itself = after, timedelta()
    while True:
        wall = _wall(zone, since)
        at = since + (next(CronSim(expression, wall - itself)) - wall)
        change = _first_change(zone, since, at)
        if change is None:
            return at
        since, itself = change, SECOND  # which may be the next time itself


def _first_change(zone: tzinfo, after: datetime, upto: datetime) -> datetime | None:
    """The first instant behind `after` up to and with `upto` from which on the zone's clocks
    are put differently, None if there is none. No zone changes twice in a day."""
    offset, before = _offset(zone, after), after
    while zone is not UTC and before < upto:
        then = min(before + DAY, upto)
        if _offset(zone, then) == offset:
            before = then
            continue
        while then - before > SECOND:
            middle = before + (then - before) // SECOND // 2 * SECOND
            before, then = (middle, then) if _offset(zone, middle) == offset else (before, middle)
        return then
    return None


def _offset(zone: tzinfo, at: datetime) -> timedelta | None:
    return at.astimezone(zone).utcoffset()


def _wall(zone: tzinfo, at: datetime) -> datetime:
    """What the zone's clocks show."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # which needs no zone data, and there may be none
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, struct.error) as error:
        raise InvalidSchedule(
            f"{name!r} is not a time zone: use Europe/Brussels, UTC, ..."
        ) from error
