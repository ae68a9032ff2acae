"""The forms of an instant: Unix milliseconds, a datetime, and the seconds of an alarm's row.

Everything of ours counts in whole milliseconds. A datetime is counted exactly, in integers:
by way of `timestamp()`, a float, one in a few thousand comes out a millisecond early. Seconds
are floats because APScheduler's table has them so; from milliseconds to them and back is
exact for every time that an alarm can be set to.
"""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def ms_of_datetime(at: datetime) -> int:
    """Unix milliseconds, whole ones that have passed; `at` has a time zone."""
    return (at - EPOCH) // MILLISECOND


def datetime_of_ms(at_ms: int) -> datetime:
    """In UTC. Raises OverflowError beyond the year 9999."""
    return EPOCH + timedelta(milliseconds=at_ms)


def ms_of_seconds(seconds: float) -> int:
    """The milliseconds that were divided by 1000 to make these seconds."""
    return round(seconds * 1000)
