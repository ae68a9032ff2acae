"""The clock: the one place that reads the time of day.

Everything that needs the time is given a `Clock`, so that a test can move it by hand. How
long something has taken, or has been true, is told by a clock that nobody sets.
"""

import time
from functools import partial
from typing import Protocol

# What time.monotonic() reads stands still while the machine is suspended; this does not.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

elapsed_seconds = partial(time.clock_gettime, _ELAPSED)
"""Seconds since some moment, time that the machine slept included where it can tell."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """The time of day in Unix milliseconds."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
