"""When by a cron expression: five fields, in a time zone, summer time included.

What happens when clocks are put forward or back is that of Debian's cron, as `cronsim`
has it: a time of day that is skipped runs at the end of the gap, one that comes twice
runs the first time; an expression with `*` in its hours or minutes goes by the real
hours, so it runs through both.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from domain.errors import InvalidSchedule
from domain.schedule import MAX_RUN_AT_MS

MAX_CHARACTERS = 255
COUNTED_MISSES = 1_000  # passed times that are counted one by one, at most


def next_by_cron(expression: str, zone: str, after_ms: int) -> int:
    """The first time behind `after_ms`, in Unix milliseconds.

    Raises InvalidSchedule for an expression or a zone that is none, or has no next time.
    """
    if not isinstance(expression, str) or len(expression) > MAX_CHARACTERS:
        raise InvalidSchedule(f"a cron expression is text of at most {MAX_CHARACTERS} characters")
    if len(expression.split()) != 5:
        raise InvalidSchedule(f"{expression!r} is not a cron expression: it has five fields")
    try:
        after = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(_zone(zone))
        at = next(CronSim(expression, after))
    except CronSimError as error:
        raise InvalidSchedule(f"{expression!r} is not a cron expression: {error}") from error
    except (StopIteration, OverflowError, ValueError) as error:
        raise InvalidSchedule(f"{expression!r} has no next time") from error
    at_ms = int(at.timestamp() * 1000)
    if at_ms > MAX_RUN_AT_MS:
        raise InvalidSchedule(f"{expression!r} has no next time before 2262")
    return at_ms


def next_run_by_cron(expression: str, zone: str, planned_ms: int, now_ms: int) -> tuple[int, int]:
    """As `domain.schedule.next_run`: the next time, and how many have passed meanwhile.

    Beyond COUNTED_MISSES, passed times are skipped and no longer counted.
    """
    missed, at_ms = 0, next_by_cron(expression, zone, planned_ms)
    while at_ms <= now_ms and missed < COUNTED_MISSES:
        missed += 1
        at_ms = next_by_cron(expression, zone, at_ms)
    return (at_ms if at_ms > now_ms else next_by_cron(expression, zone, now_ms)), missed


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise InvalidSchedule(
            f"{name!r} is not a time zone: use Europe/Brussels, UTC, ..."
        ) from error
