"""What may be scheduled, and the planned times of what recurs every so often.

How an entry of a schedule goes on after each run is in `scheduled_entry.py`.
"""

from reservation_expiry.domain.alarm import looks_like_seconds
from reservation_expiry.domain.errors import InvalidSchedule

MIN_REPEAT_MS = 100
MAX_REPEAT_MS = 366 * 24 * 3600 * 1000
MAX_RUN_AT_MS = 9_223_372_036_854  # as far as an alarm can be set, in 2262
MAX_ID_CHARACTERS = 255


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
