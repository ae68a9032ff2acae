"""`reservation-expiry` on a machine whose time of day is WRONG_BY_MS off.

What the interpreter and APScheduler call the time is shifted; monotonic clocks are not,
as on a real machine.
"""

import os
import time
from datetime import datetime, timedelta

WRONG_BY_MS = int(os.environ["WRONG_BY_MS"])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + WRONG_BY_MS / 1000
time.time_ns = lambda: _time_ns() + WRONG_BY_MS * 1_000_000


class WrongDatetime(datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + timedelta(milliseconds=WRONG_BY_MS)


if __name__ == "__main__":
    import apscheduler.schedulers.base

    import reservation_expiry.infrastructure.alarms.scheduler
    from reservation_expiry.api.cli import main

    apscheduler.schedulers.base.datetime = WrongDatetime
    reservation_expiry.infrastructure.alarms.scheduler.datetime = WrongDatetime
    main()
