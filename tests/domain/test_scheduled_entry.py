"""How a scheduled entry is planned, and goes on after each run.

The planning is one table: an entry, what happens to it, and what its progress is then. No cron
expression is read here: `daily` stands for whoever knows them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from reservation_expiry.domain.alarm import MAX_ATTEMPTS
from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.schedule import MAX_RUN_AT_MS
from reservation_expiry.domain.scheduled_entry import (
    COUNTED_MISSES,
    Progress,
    ScheduledEntry,
    next_run_by_cron,
    next_time_of,
    planned,
)

NOW, HOUR, DAY = 1_800_000_000_000, 3_600_000, 86_400_000
MIDNIGHT = NOW - NOW % DAY


def daily(expression: str, zone: str, after_ms: int) -> int:
    """Each midnight, whatever the expression."""
    return after_ms - after_ms % DAY + DAY


def nowhere(entry: ScheduledEntry, planned_ms: int, now_ms: int) -> tuple[int, int]:
    raise InvalidSchedule("'Mars/Olympus' is not a time zone")


by_rule = partial(next_time_of, next_by_cron=daily)
ONCE = ScheduledEntry("e", NOW, None, None, None, None, Progress(1, NOW, NOW))
HOURLY = replace(ONCE, repeat_ms=HOUR)
BY_CRON = ScheduledEntry("e", None, None, "0 0 * * *", "UTC", None, Progress(1, MIDNIGHT, MIDNIGHT))
LAST = replace(HOURLY, progress=Progress(1, MAX_RUN_AT_MS, MAX_RUN_AT_MS))
Step = Callable[[ScheduledEntry], ScheduledEntry | None]


def far(entry: ScheduledEntry, **progress: Any) -> ScheduledEntry:
    """The entry as far as that."""
    return replace(entry, progress=replace(entry.progress, **progress))


def well(now_ms: int = NOW, next_time: Any = by_rule) -> Step:
    return lambda entry: entry.ended_well(now_ms, next_time)


def failing(times: int = 1, next_time: Any = by_rule) -> Step:
    def step(entry: ScheduledEntry) -> ScheduledEntry:
        for _ in range(times):
            entry, _ = entry.failed(NOW, 0.0, next_time)
        return entry

    return step


def interrupted(entry: ScheduledEntry) -> ScheduledEntry:
    return entry.failed(NOW, 0.0, by_rule, interrupted=True)[0]


def redriven(now_ms: int = NOW) -> Step:
    return lambda entry: entry.redriven(now_ms, by_rule)


def in_company(company: int) -> Step:
    return lambda entry: entry.in_company(company)


def on(run_at_ms: int | None, look_at_ms: int | None = None, **counts: Any) -> Progress:
    return Progress(1, run_at_ms, run_at_ms if look_at_ms is None else look_at_ms, **counts)


MARS = "'Mars/Olympus' is not a time zone"
LOST = far(HOURLY, run_at_ms=None, look_at_ms=None, parked=True, next_problem=MARS)
GIVEN_UP = far(ONCE, look_at_ms=None, parked=True, attempts=7, gave_up=1)
PARKED = Progress(1, NOW, None, gave_up=1, attempts=7, parked=True)
PLANNING: dict[str, tuple[ScheduledEntry, Step, Progress | None]] = {
    "planned once, it is done when it has run": (ONCE, well(), None),
    "one that recurs is planned anew and counted": (
        far(HOURLY, attempts=3, company=1),
        well(),
        on(NOW + HOUR, runs=1),
    ),
    "a ms before the next time that is next": (
        HOURLY,
        well(NOW + HOUR - 1),
        on(NOW + HOUR, runs=1),
    ),
    "at the next time that is missed": (
        HOURLY,
        well(NOW + HOUR),
        on(NOW + 2 * HOUR, runs=1, missed=1),
    ),
    "a ms later, too": (HOURLY, well(NOW + HOUR + 1), on(NOW + 2 * HOUR, runs=1, missed=1)),
    "run early, its own time is not the next": (HOURLY, well(NOW - 5), on(NOW + HOUR, runs=1)),
    "by cron a ms before the next time": (
        BY_CRON,
        well(MIDNIGHT + DAY - 1),
        on(MIDNIGHT + DAY, runs=1),
    ),
    "by cron at the next time": (
        BY_CRON,
        well(MIDNIGHT + DAY),
        on(MIDNIGHT + 2 * DAY, runs=1, missed=1),
    ),
    "by cron three days late": (
        BY_CRON,
        well(MIDNIGHT + 3 * DAY + HOUR),
        on(MIDNIGHT + 4 * DAY, runs=1, missed=3),
    ),
    "f36: without a next time the run counts, and the reason is kept": (
        HOURLY,
        well(next_time=nowhere),
        Progress(1, None, None, runs=1, parked=True, next_problem=MARS),
    ),
    "f36: so it is where the last attempt failed": (
        HOURLY,
        failing(MAX_ATTEMPTS, nowhere),
        Progress(1, None, None, gave_up=1, parked=True, next_problem=MARS),
    ),
    "f36: and where time ends": (
        LAST,
        well(MAX_RUN_AT_MS),
        Progress(
            1, None, None, runs=1, parked=True, next_problem="there is no next time before 2262"
        ),
    ),
    "an attempt that failed is made again": (
        HOURLY,
        failing(),
        on(NOW, NOW + 2_000, attempts=1),
    ),
    "after a longer wait each time": (HOURLY, failing(6), on(NOW, NOW + 64_000, attempts=6)),
    "f37: giving up a planned time is not giving up the recurrence": (
        HOURLY,
        failing(MAX_ATTEMPTS),
        on(NOW + HOUR, gave_up=1),
    ),
    "planned once, it is parked when it is given up": (ONCE, failing(MAX_ATTEMPTS), PARKED),
    "ended with its process, it is begun alone": (
        HOURLY,
        interrupted,
        on(NOW, NOW + 2_000, attempts=1, company=1),
    ),
    "a fresh start is now": (GIVEN_UP, redriven(NOW + 5), on(NOW, NOW + 5, gave_up=1)),
    "now, too, for what the first release parked though it recurs": (
        replace(GIVEN_UP, repeat_ms=HOUR),
        redriven(NOW + 5),
        on(NOW, NOW + 5, gave_up=1),
    ),
    "or at the next time, if it had none": (LOST, redriven(), on(NOW + HOUR)),
    "a first company": (HOURLY, in_company(8), on(NOW, company=8)),
    "a smaller one": (far(HOURLY, company=8), in_company(4), on(NOW, company=4)),
    "no larger one": (far(HOURLY, company=4), in_company(8), on(NOW, company=4)),
}


@pytest.mark.parametrize("case", PLANNING)
def test(case: str) -> None:
    entry, step, progress = PLANNING[case]
    after = step(entry)
    if progress is None:
        assert after is None
    else:
        assert after == replace(entry, progress=progress)


def outcomes(entry: ScheduledEntry, next_time: Any) -> list[str]:
    found = []
    for _ in range(MAX_ATTEMPTS):
        entry, outcome = entry.failed(NOW, 0.5, next_time)
        found.append(outcome)
    return found


@pytest.mark.parametrize("entry", [ONCE, HOURLY, BY_CRON])
@pytest.mark.parametrize("next_time", [by_rule, nowhere])
def test_the_last_attempt_gives_a_planned_time_up(entry: ScheduledEntry, next_time: Any) -> None:
    assert outcomes(entry, next_time) == ["failed"] * 6 + ["gave-up"]


def test_an_attempt_that_ended_with_its_process_is_told_apart_until_the_last() -> None:
    assert HOURLY.failed(NOW, 0.0, by_rule, interrupted=True)[1] == "interrupted"
    worn = far(HOURLY, attempts=MAX_ATTEMPTS - 1)
    assert worn.failed(NOW, 0.0, by_rule, interrupted=True)[1] == "gave-up"


def test_a_fresh_start_is_refused_where_there_is_no_next_time_still() -> None:
    with pytest.raises(InvalidSchedule, match="Mars"):
        LOST.redriven(NOW, nowhere)


def test_no_more_than_a_thousand_passed_times_of_a_cron_expression_are_counted() -> None:
    now_ms = MIDNIGHT + (COUNTED_MISSES + 7) * DAY + HOUR
    found = next_run_by_cron("0 0 * * *", "UTC", MIDNIGHT, now_ms, daily)
    assert found == (MIDNIGHT + (COUNTED_MISSES + 8) * DAY, COUNTED_MISSES)


def asked(
    run_at: Any = None, repeat_ms: Any = None, cron: Any = None, zone: str = "UTC"
) -> ScheduledEntry:
    return planned("e", run_at, repeat_ms, cron, zone, None, NOW, daily)


def test_what_is_asked_for_is_planned_for_its_first_time() -> None:
    assert asked(NOW + 1).progress == Progress(0, NOW + 1, NOW + 1)
    assert asked(1).progress.run_at_ms == 1  # due at once
    by_cron = asked(cron="0 0 * * *", zone="Europe/Brussels")
    assert by_cron.progress.run_at_ms == MIDNIGHT + DAY
    assert (by_cron.first_at_ms, by_cron.zone) == (None, "Europe/Brussels")
    assert asked(NOW).zone is None  # there is nothing that it says


REFUSED = {
    "neither": ({}, "runAt is a whole number"),
    "both": ({"run_at": NOW, "cron": "0 0 * * *"}, "runAt or cron, not both"),
    "a period of cron": ({"repeat_ms": HOUR, "cron": "0 0 * * *"}, "runAt or cron, not both"),
    "seconds": ({"run_at": NOW // 1000}, "runAt is in milliseconds"),
    "too often": ({"run_at": NOW, "repeat_ms": 99}, "repeatMs is a whole number"),
    "after the end of time": ({"run_at": MAX_RUN_AT_MS + 1}, "runAt is a whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_planned_is_refused(case: str) -> None:
    given, sentence = REFUSED[case]
    with pytest.raises(InvalidSchedule, match=sentence):
        asked(**given)


FIRST_RELEASE = replace(HOURLY, first_at_ms=NOW + 3 * HOUR, first_is_known=False)
SAME: dict[str, tuple[ScheduledEntry, ScheduledEntry, bool]] = {
    "as it was put": (HOURLY, asked(NOW, HOUR), True),
    "at another of its times": (HOURLY, asked(NOW + HOUR, HOUR), False),
    "as often as something else": (HOURLY, asked(NOW, 2 * HOUR), False),
    "once": (HOURLY, asked(NOW), False),
    "by its expression": (BY_CRON, asked(cron="0 0 * * *"), True),
    "by another": (BY_CRON, asked(cron="0 1 * * *"), False),
    "in another zone": (BY_CRON, asked(cron="0 0 * * *", zone="Europe/Brussels"), False),
    "first release: at the time that was kept": (FIRST_RELEASE, asked(NOW + 3 * HOUR, HOUR), True),
    "first release: at an earlier one of its times": (FIRST_RELEASE, asked(NOW, HOUR), True),
    "first release: at a later one": (FIRST_RELEASE, asked(NOW + 4 * HOUR, HOUR), False),
    "first release: out of step": (FIRST_RELEASE, asked(NOW + 1, HOUR), False),
}


@pytest.mark.parametrize("case", SAME)
def test_an_entry_is_known_again_by_its_times(case: str) -> None:
    found, wanted, same = SAME[case]
    assert found.has_the_times_of(wanted) == same
