"""Whether this process does its job now, told without waiting for what stands still.

Ready means: it can write, it looks for due alarms, and what is due is being settled. Not
"nothing is overdue": after a night's outage a process that ends 200,000 holds at full speed
does all that can be asked, and to send its requests elsewhere would make nothing faster. So
what counts is whether anything was settled lately; `backlogMs` tells the rest.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.clock import AlarmClock
from reservation_expiry.infrastructure.alarms.dispatcher import AlarmDispatcher
from reservation_expiry.infrastructure.machine.output import lines_dropped
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.writer import Writer

PASS_LIMIT_SECONDS = 5.0  # a pass that takes longer means that alarms are not looked after
ALARM_LIMIT_SECONDS = 10.0  # for which due alarms may not be settled, or not be claimed
WRITE_LIMIT_SECONDS = 2.0  # a commit on its way for longer means "not ready"
TROUBLE_SECONDS = 5.0  # for which a failure to append is news, if nobody has tried again
ASK_SECONDS = 1.0  # how long the database may take to tell what is due

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Backlog:
    """What the database tells: how long the oldest due alarm that this process could run has
    waited, how many are parked, and how many claims it has made and not settled in time."""

    waited_ms: int = 0
    parked: int = 0
    unsettled: int = 0


@dataclass(frozen=True)
class Readiness:
    """`reasons` says why it is not ready, for anybody to read: no addresses, no driver's words.

    `backlog_ms` is how long the oldest due alarm has waited that this process could run.
    """

    reasons: tuple[str, ...]
    backlog_ms: int
    parked: int
    alarm_counts: dict[str, int]
    log_lines_dropped: int

    @property
    def ready(self) -> bool:
        return not self.reasons


class Lookout:
    """`readiness()`, from any thread, within ASK_SECONDS. `backlog` asks the database."""

    def __init__(
        self,
        writer: Writer,
        clock: AlarmClock,
        handler: AlarmDispatcher,
        backlog: Callable[[], Backlog],
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._handler = handler
        self._backlog = Question(backlog)
        self._last = Backlog()

    def readiness(self) -> Readiness:
        reasons = [*self._about_the_clock(), *self._about_the_writer()]
        try:
            self._last = self._backlog.answer(ASK_SECONDS)
        except ReservationExpiryError as error:
            reasons.append(f"what is due cannot be told: {error.public}")
        except TimeoutError:
            reasons.append(f"the database did not tell what is due within {ASK_SECONDS:.0f} s")
        else:
            reasons += self._about_the_backlog(self._last)
        return Readiness(
            tuple(reasons),
            self._last.waited_ms,
            self._last.parked,
            dict(self._handler.counts),
            lines_dropped(),
        )

    def _about_the_clock(self) -> list[str]:
        since_pass = self._clock.seconds_since_pass
        if since_pass is None:
            return ["the alarm clock is not running"]
        reasons = []
        if since_pass > PASS_LIMIT_SECONDS:
            reasons.append(f"no pass over the alarms has ended for {since_pass:.0f} s")
        since_claim = time.monotonic() - self._handler.claimed_at
        if since_claim > ALARM_LIMIT_SECONDS:
            reasons.append(f"due alarms could not be claimed for {since_claim:.0f} s")
        return reasons

    def _about_the_writer(self) -> list[str]:
        reasons = []
        waiting = self._writer.seconds_waiting
        if waiting > WRITE_LIMIT_SECONDS:
            reasons.append(f"a commit has been waiting for {waiting:.0f} s")
        error = self._writer.last_error or self._writer.append_error(TROUBLE_SECONDS)
        if error is not None:
            words = error.public if isinstance(error, ReservationExpiryError) else "see the log"
            reasons.append(f"the last transaction failed: {words}")
        return reasons

    def _about_the_backlog(self, backlog: Backlog) -> list[str]:
        if self._clock.seconds_since_pass is None:
            return []
        reasons = []
        if backlog.unsettled:
            reasons.append(
                f"{backlog.unsettled} alarms were claimed and not settled within "
                f"{ALARM_LIMIT_SECONDS:g} s"
            )
        idle = time.monotonic() - self._handler.settled_at
        if backlog.waited_ms > ALARM_LIMIT_SECONDS * 1000 and idle > ALARM_LIMIT_SECONDS:
            due = backlog.waited_ms // 1000
            reasons.append(f"alarms have been due for {due} s, none was settled for {idle:.0f} s")
        return reasons


def backlog_of(queries: Queries, handler: AlarmDispatcher, now_ms: int) -> Backlog:
    """Asks the database. A claim that is another's by now, as after this process was frozen,
    is none of ours; where one is seen to be, the rest are believed."""
    unsettled = handler.unsettled(ALARM_LIMIT_SECONDS)
    lost: list[Claim] = []
    for claim in unsettled:
        if queries.has_alarm(claim.id, claim.job_state):
            break
        lost.append(claim)
    handler.close(lost)
    return Backlog(*queries.backlog(handler.scope, now_ms), len(unsettled) - len(lost))


class Question(Generic[Answer]):
    """Asks the database something, once at a time, in a thread that no caller must join."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._asking = threading.Lock()
        self._pending: Future[Answer] | None = None

    def answer(self, within_seconds: float) -> Answer:
        """Raises what asking raises, or TimeoutError. Who comes meanwhile gets the same
        answer."""
        with self._asking:
            pending = self._pending
            if pending is None or pending.done():
                pending = self._pending = Future()
                threading.Thread(
                    target=self._run, args=(pending,), name="readiness", daemon=True
                ).start()
        return pending.result(within_seconds)

    def _run(self, pending: "Future[Answer]") -> None:
        try:
            pending.set_result(self._ask())
        except BaseException as error:
            pending.set_exception(error)
