"""Scheduled events: what may be scheduled, and how an event goes on after each run.

An event that is planned once is done when it has run, and parked when it is given up. One
that recurs goes on after both: giving up a planned time is not giving up the recurrence.
A planned time that passes while an earlier one is still run, or retried, is missed: it is
counted and not made up for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from reservation_expiry.domain.alarm import looks_like_seconds, next_attempt_at_ms
from reservation_expiry.domain.durable_object import RunOutcome
from reservation_expiry.domain.errors import InvalidSchedule

MIN_REPEAT_MS = 100
MAX_REPEAT_MS = 366 * 24 * 3600 * 1000
MAX_RUN_AT_MS = 9_223_372_036_854  # as far as an alarm can be set, in 2262
MAX_ID_CHARACTERS = 255

NextTime = Callable[[int], tuple[int, int]]
"""Of a planned time: the next one, later than now, and how many have passed meanwhile.
Raises InvalidSchedule if there is none."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an event has come: all that its runs change.

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


def ended_well(progress: Progress, next_time: NextTime | None) -> Progress | None:
    """After a run that ended well; None if the event is done. It recurs by `next_time`."""
    if next_time is None:
        return None
    counted = replace(progress, runs=progress.runs + 1, company=0)
    return _going_on(counted, next_time)


def failed(
    progress: Progress,
    next_time: NextTime | None,
    now_ms: int,
    random: float,
    *,
    interrupted: bool = False,
) -> tuple[Progress, RunOutcome]:
    """After an attempt that failed, or ended with its process; and what became of it.

    `random` is uniform in [0, 1).
    """
    attempts = progress.attempts + 1
    counted = replace(progress, attempts=attempts, company=1 if interrupted else 0)
    again_ms = next_attempt_at_ms(attempts, now_ms, random)
    if again_ms is not None:
        outcome: RunOutcome = "interrupted" if interrupted else "failed"
        return replace(counted, look_at_ms=again_ms), outcome
    counted = replace(counted, gave_up=progress.gave_up + 1)
    if next_time is None:
        return replace(counted, look_at_ms=None, parked=True), "gave-up"
    return _going_on(counted, next_time), "gave-up"


def redriven(progress: Progress, next_time: NextTime | None, now_ms: int) -> Progress:
    """A fresh start of a parked event: now, or at its next time if it had none. Raises
    InvalidSchedule if there is none still."""
    afresh = replace(progress, attempts=0, parked=False, next_problem=None, look_at_ms=now_ms)
    if progress.run_at_ms is not None or next_time is None:
        return afresh
    run_at_ms, _ = next_time(now_ms)
    return replace(afresh, run_at_ms=run_at_ms, look_at_ms=run_at_ms)


def _going_on(progress: Progress, next_time: NextTime) -> Progress:
    """With its next time; if there is none, parked, with the reason."""
    try:
        run_at_ms, missed = next_time(progress.run_at_ms or 0)
    except InvalidSchedule as problem:
        ended = replace(progress, run_at_ms=None, look_at_ms=None, attempts=0)
        return replace(ended, parked=True, next_problem=str(problem))
    counted = replace(progress, missed=progress.missed + missed, attempts=0)
    return replace(counted, run_at_ms=run_at_ms, look_at_ms=run_at_ms)


def next_run(planned_ms: int, repeat_ms: int, now_ms: int) -> tuple[int, int]:
    """The next planned time after a run that was planned for `planned_ms`, and how many
    planned times have passed meanwhile: those are counted, not made up for.

    It is `planned_ms` and a whole number of periods, so what a run takes, or how late it
    was, never moves the ones after it. Raises InvalidSchedule where time ends.
    """
    periods = max((now_ms - planned_ms) // repeat_ms + 1, 1)
    run_at_ms = planned_ms + periods * repeat_ms
    if run_at_ms > MAX_RUN_AT_MS:
        raise InvalidSchedule("there is no next time before 2262")
    return run_at_ms, periods - 1


def check_event(event_id: object, run_at: object, repeat_ms: object) -> int:
    """When it runs first. Raises InvalidSchedule, saying what is allowed."""
    check_name(event_id, "an event's id")
    if type(run_at) is not int or not 0 < run_at <= MAX_RUN_AT_MS:
        raise InvalidSchedule(
            f"runAt is a whole number of Unix milliseconds from 1 to {MAX_RUN_AT_MS}, "
            f"not {run_at!r}"
        )
    if looks_like_seconds(run_at):
        raise InvalidSchedule(
            f"runAt is in milliseconds, and {run_at} is what a time in seconds looks like: "
            f"{run_at}000 would be its milliseconds"
        )
    if repeat_ms is not None and (
        type(repeat_ms) is not int or not MIN_REPEAT_MS <= repeat_ms <= MAX_REPEAT_MS
    ):
        raise InvalidSchedule(
            f"repeatMs is a whole number of milliseconds from {MIN_REPEAT_MS} to {MAX_REPEAT_MS}, "
            f"not {repeat_ms!r}"
        )
    return run_at


def check_name(name: object, what: str) -> None:
    """Raises InvalidSchedule for what could not stand in the path of a URL, as one part."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID_CHARACTERS:
        raise InvalidSchedule(f"{what} is text of 1 to {MAX_ID_CHARACTERS} characters")
    if not name.isprintable() or set(name) & set("/\\\ufffd") or name in (".", ".."):
        raise InvalidSchedule(f"{what} is printable text without slashes, not {name!r}")
