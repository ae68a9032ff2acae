"""What setAlarm() takes for a time. The cases are those of Cloudflare's runtime, measured."""

import math
from datetime import datetime
from typing import Any

from reservation_expiry.infrastructure.instants import ms_of_datetime

MAX_ALARM_MS = 9_223_372_036_854  # the last whole ms of a 64-bit count of ns, in 2262


def alarm_time_ms(time: Any, now_ms: int) -> int:
    """Unix milliseconds, whole, and not before now: a time that has passed means now.

    `time` is a number of Unix milliseconds, of which a fraction is cut off, or a datetime
    with a time zone. Raises TypeError for anything else, and for times that are not from
    1 to MAX_ALARM_MS.
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise TypeError("setAlarm() needs to know the time zone of a datetime")
        time = ms_of_datetime(time)
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise TypeError(
            "setAlarm() takes Unix milliseconds or a datetime with a time zone, "
            f"not {type(time).__name__}"
        )
    if isinstance(time, float) and not math.isfinite(time):
        raise TypeError(f"setAlarm() takes a point in time, and {time} is none")
    at_ms = int(time)
    if at_ms <= 0:
        raise TypeError(f"setAlarm() takes a time after 1970 began, and {time} is not")
    if at_ms > MAX_ALARM_MS:
        raise TypeError(f"setAlarm() takes times up to {MAX_ALARM_MS} (the year 2262), not {time}")
    return max(at_ms, now_ms)
