"""A scheduled entry: what somebody has put into a schedule, and how far it has come.

People know it as an event of their schedule. Here is when it runs, and how it goes on after
each run: pure functions of the entry and now. Cron expressions need a calendar and zone data,
so whoever knows those is passed in (`infrastructure/objects/cron.py`).

An entry that is planned once is done when it has run, and parked when it is given up. One
that recurs goes on after both: giving up a planned time is not giving up the recurrence.
A planned time that passes while an earlier one is still run, or retried, is missed: it is
counted and not made up for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from reservation_expiry.domain.alarm import next_attempt_at_ms
from reservation_expiry.domain.durable_object import RunOutcome
from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.schedule import check_event, next_run

COUNTED_MISSES = 1_000  # passed times of a cron expression that are counted, at most

NextByCron = Callable[[str, str, int], int]
"""Of an expression, a time zone and an instant: the first time behind that instant. Raises
InvalidSchedule if there is none."""

NextTime = Callable[["ScheduledEntry", int, int], tuple[int, int]]
"""Of an entry that recurs, a planned time and now: the next time, later than now, and how many
have passed meanwhile. Raises InvalidSchedule if there is none."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an entry has come: all that its runs change.

    `run_at_ms` is the time that it is planned for next, None if there is none, for which
    `next_problem` says why; `look_at_ms` when it is tried next, None if it is `parked`.
    `attempts` at that planned time have failed so far. `company` is with how many others it
    may be begun at once, if it was under way when its process ended; else 0.
    """

    revision: int
    run_at_ms: int | None
    look_at_ms: int | None
    runs: int = 0
    missed: int = 0
    gave_up: int = 0
    attempts: int = 0
    parked: bool = False
    next_problem: str | None = None
    company: int = 0


@dataclass(frozen=True, slots=True)
class ScheduledEntry:
    """It recurs every `repeat_ms` from `first_at_ms`, or by the expression `cron` in a time
    `zone`, which has no `first_at_ms`, or not at all.

    Of an entry whose first time was not kept, as the first release did not, `first_at_ms` is
    one of its planned times and `first_is_known` is false.
    """

    id: str
    first_at_ms: int | None
    repeat_ms: int | None
    cron: str | None
    zone: str | None
    payload: Any
    progress: Progress
    first_is_known: bool = True

    @property
    def recurs(self) -> bool:
        return self.repeat_ms is not None or self.cron is not None

    def has_the_times_of(self, asked: "ScheduledEntry") -> bool:
        """Whether it was put to run when `asked` is to. If its first time was not kept, any of
        its planned times may have been that."""
        if (self.repeat_ms, self.cron, self.zone) != (asked.repeat_ms, asked.cron, asked.zone):
            return False
        if self.first_at_ms == asked.first_at_ms or asked.cron is not None:
            return True
        if self.first_is_known or self.first_at_ms is None or asked.first_at_ms is None:
            return False
        since_ms = self.first_at_ms - asked.first_at_ms
        return self.repeat_ms is not None and since_ms > 0 and since_ms % self.repeat_ms == 0

    # After a run

    def ended_well(self, now_ms: int, next_time: NextTime) -> "ScheduledEntry | None":
        """After a run that ended well; None if it is done."""
        if not self.recurs:
            return None
        counted = replace(self.progress, runs=self.progress.runs + 1, company=0)
        return self._goes_on(counted, now_ms, next_time)

    def failed(
        self, now_ms: int, random: float, next_time: NextTime, *, interrupted: bool = False
    ) -> tuple["ScheduledEntry", RunOutcome]:
        """After an attempt that failed, or ended with its process; and what became of it.

        `random` is uniform in [0, 1).
        """
        attempts = self.progress.attempts + 1
        counted = replace(self.progress, attempts=attempts, company=1 if interrupted else 0)
        again_ms = next_attempt_at_ms(attempts, now_ms, random)
        if again_ms is not None:
            outcome: RunOutcome = "interrupted" if interrupted else "failed"
            return self.come_to(replace(counted, look_at_ms=again_ms)), outcome
        counted = replace(counted, gave_up=self.progress.gave_up + 1)
        if not self.recurs:
            return self.come_to(replace(counted, look_at_ms=None, parked=True)), "gave-up"
        return self._goes_on(counted, now_ms, next_time), "gave-up"

    def redriven(self, now_ms: int, next_time: NextTime) -> "ScheduledEntry":
        """A fresh start of what is parked: now, or at its next time if it had none. Raises
        InvalidSchedule if there is none still."""
        run_at_ms, look_at_ms = self.progress.run_at_ms, now_ms
        if run_at_ms is None and self.recurs:
            run_at_ms, _ = next_time(self, now_ms, now_ms)
            look_at_ms = run_at_ms
        afresh = replace(self.progress, attempts=0, parked=False, next_problem=None)
        return self.come_to(replace(afresh, run_at_ms=run_at_ms, look_at_ms=look_at_ms))

    def in_company(self, company: int) -> "ScheduledEntry":
        """It was under way when its process ended: it is begun with fewer others from now on,
        `company` at most."""
        if 0 < self.progress.company <= company:
            return self
        return self.come_to(replace(self.progress, company=company))

    def come_to(self, progress: Progress) -> "ScheduledEntry":
        """The same entry, as far as that. (`replace` takes three times as long.)"""
        return ScheduledEntry(
            self.id,
            self.first_at_ms,
            self.repeat_ms,
            self.cron,
            self.zone,
            self.payload,
            progress,
            self.first_is_known,
        )

    def _goes_on(self, counted: Progress, now_ms: int, next_time: NextTime) -> "ScheduledEntry":
        """With its next time; if there is none, parked, with the reason."""
        try:
            run_at_ms, missed = next_time(self, counted.run_at_ms or 0, now_ms)
        except InvalidSchedule as problem:
            ended = replace(counted, run_at_ms=None, look_at_ms=None, attempts=0)
            return self.come_to(replace(ended, parked=True, next_problem=str(problem)))
        missed += counted.missed
        planned = replace(
            counted, missed=missed, attempts=0, run_at_ms=run_at_ms, look_at_ms=run_at_ms
        )
        return self.come_to(planned)


def planned(
    id: str,
    run_at_ms: int | None,
    repeat_ms: int | None,
    cron: str | None,
    zone: str,
    payload: Any,
    now_ms: int,
    next_by_cron: NextByCron,
) -> ScheduledEntry:
    """The entry that is asked for, which has no revision yet. Raises InvalidSchedule, saying
    what is allowed; the payload is not looked at."""
    first_ms = run_at_ms
    if cron is not None:
        if run_at_ms is not None or repeat_ms is not None:
            raise InvalidSchedule("an event has runAt or cron, not both")
        first_ms = next_by_cron(cron, zone, now_ms)
    first_ms = check_event(id, first_ms, repeat_ms)
    zone_of_cron = None if cron is None else zone
    progress = Progress(0, first_ms, first_ms)
    return ScheduledEntry(id, run_at_ms, repeat_ms, cron, zone_of_cron, payload, progress)


def next_time_of(
    entry: ScheduledEntry, planned_ms: int, now_ms: int, next_by_cron: NextByCron
) -> tuple[int, int]:
    """What NextTime says: by the entry's own rule."""
    if entry.cron is not None:
        zone = entry.zone or "UTC"
        return next_run_by_cron(entry.cron, zone, planned_ms, now_ms, next_by_cron)
    if entry.repeat_ms is None:
        raise InvalidSchedule("it is planned once, and has no next time")
    return next_run(planned_ms, entry.repeat_ms, now_ms)


def next_run_by_cron(
    expression: str, zone: str, planned_ms: int, now_ms: int, next_by_cron: NextByCron
) -> tuple[int, int]:
    """As `schedule.next_run`: the next time, and how many have passed meanwhile.

    Beyond COUNTED_MISSES, passed times are skipped and no longer counted.
    """
    missed, at_ms = 0, next_by_cron(expression, zone, planned_ms)
    while at_ms <= now_ms and missed < COUNTED_MISSES:
        missed += 1
        at_ms = next_by_cron(expression, zone, at_ms)
    return (at_ms if at_ms > now_ms else next_by_cron(expression, zone, now_ms)), missed
