"""How the service stands now: what the first page shows."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from reservation_expiry.api.dashboard.charts import Minute, minutes_of
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.sql.activity import STATUS_AFTER, Activity, Census

HOUR_MS = 3_600_000
MINUTES = 60
TOLD_APART = 200_000  # events of the last hour; more are counted and not told apart
COUNT_AGAIN_SECONDS = 5.0  # counting looks at every row, and many may have the page open

T = TypeVar("T")


@dataclass(frozen=True)
class Counts:
    """What it takes a look at every row to know. `next_alarm_at_ms` is None if there is none."""

    census: Census
    next_alarm_at_ms: int | None
    bindings: dict[str, int]  # objects, by class
    at_ms: int


@dataclass(frozen=True)
class LastHour:
    """`minutes` is None where too much happened to tell it apart; `events` is how much."""

    minutes: list[Minute] | None
    events: int
    lateness: list[int]


class Remembered(Generic[T]):
    """Asks anew when the answer is older than `seconds`; who comes meanwhile waits for it."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._found: tuple[float, T] | None = None

    def get(self) -> T:
        with self._lock:
            now = time.monotonic()
            if self._found is None or now - self._found[0] > self._seconds:
                self._found = (now, self._ask())
            return self._found[1]


def count(application: ReservationApplication, activity: Activity) -> Counts:
    return Counts(
        application.census(),
        activity.next_alarm_at(),
        application.queries.count_objects(),
        application.clock.now_ms(),
    )


def last_hour(activity: Activity, head: int, now_ms: int) -> LastHour:
    """From the log and the kept attempts."""
    since_ms = now_ms - HOUR_MS
    after = activity.position_at(since_ms, head)
    events = head - after
    minutes = None
    if events <= TOLD_APART:
        minutes = minutes_of(activity.by_minute(after), STATUS_AFTER, now_ms, MINUTES)
    return LastHour(minutes, events, activity.lateness(since_ms))
