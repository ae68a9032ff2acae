"""The clock: the one place that reads the time of day.

Everything that needs the time is given a `Clock`, so that a test can move it by hand.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """The time of day in Unix milliseconds."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
