"""The alarm slot, transition by transition: (slot, what happens, now) gives the slot after it
and when to look at it. The figures are those measured on the original runtime."""

from typing import Any

import pytest

from reservation_expiry.domain.alarm import MAX_ATTEMPTS
from reservation_expiry.domain.alarm_slot import AlarmSlot, PlannedSlot, set_to

AT, NOW = 1_800_000_000_000, 1_800_000_001_234
LEASE = 5_000
SET = AlarmSlot(AT)


def claimed(attempts: int, **more: Any) -> AlarmSlot:
    return AlarmSlot(AT, attempts, "t", **more)


# name: (the slot, what happens, what it is then, when it is looked at)
TRANSITIONS: dict[str, tuple[AlarmSlot, Any, AlarmSlot, int | None]] = {
    "a first attempt begins": (SET, lambda s: s.begin("t", LEASE, NOW), claimed(1), NOW + LEASE),
    "a second one begins, and would wait less than a lease": (
        AlarmSlot(AT, 1),
        lambda s: s.begin("t", LEASE, NOW),
        claimed(2),
        NOW + LEASE,
    ),
    "a third one's lease is the wait after its failure": (
        AlarmSlot(AT, 2),
        lambda s: s.begin("t", LEASE, NOW),
        claimed(3),
        NOW + 8_000,
    ),
    "a suspect begins again, uncounted": (
        AlarmSlot(AT, 1, "old+3"),
        lambda s: s.begin("t", LEASE, NOW, counts=False),
        claimed(1),
        NOW + LEASE,
    ),
    "one that waited begins, and still waits to be told so": (
        AlarmSlot(AT, waits=True),
        lambda s: s.begin("t", LEASE, NOW),
        claimed(1, waits=True),
        NOW + LEASE,
    ),
    "the lease is kept": (claimed(1), lambda s: s.keep(LEASE, NOW), claimed(1), NOW + LEASE),
    "the lease of a late attempt is kept for longer": (
        claimed(6),
        lambda s: s.keep(LEASE, NOW),
        claimed(6),
        NOW + 64_000,
    ),
    **{
        f"attempt {attempts} fails": (
            claimed(attempts),
            lambda s: s.fail(NOW, 0.0),
            AlarmSlot(AT, attempts),
            NOW + wait_ms,
        )
        for attempts, wait_ms in enumerate([2_000, 4_000, 8_000, 16_000, 32_000, 64_000], start=1)
    },
    "jitter adds a quarter at most": (
        claimed(1),
        lambda s: s.fail(NOW, 0.999_999),
        AlarmSlot(AT, 1),
        NOW + 2_499,
    ),
    "the last attempt fails": (
        claimed(MAX_ATTEMPTS),
        lambda s: s.fail(NOW, 0.0),
        AlarmSlot(AT, MAX_ATTEMPTS),
        None,
    ),
    "a failure ends the waiting": (
        claimed(1, waits=True),
        lambda s: s.fail(NOW, 0.0),
        AlarmSlot(AT, 1),
        NOW + 2_000,
    ),
    "it is given back": (claimed(1), lambda s: s.give_back(NOW), SET, AT),
    "it is given back for a while": (
        claimed(3),
        lambda s: s.give_back(NOW, 1),
        AlarmSlot(AT, 2, waits=True),
        NOW + 1,
    ),
    "it came early": (claimed(2), lambda s: s.move(AT + 1), SET, AT + 1),
    "its handler set the next one and failed: once": (
        claimed(2),
        lambda s: s.supersede(NOW, NOW),
        AlarmSlot(NOW, superseded=1),
        NOW,
    ),
    "... twice in a row": (
        claimed(1, superseded=1),
        lambda s: s.supersede(NOW, NOW),
        AlarmSlot(NOW, superseded=2),
        NOW + 2_000,
    ),
    "... three times": (
        claimed(1, superseded=2),
        lambda s: s.supersede(NOW, NOW),
        AlarmSlot(NOW, superseded=3),
        NOW + 4_000,
    ),
    "... for a time that is late enough": (
        claimed(1, superseded=1),
        lambda s: s.supersede(NOW + 2_000, NOW),
        AlarmSlot(NOW + 2_000, superseded=2),
        NOW + 2_000,
    ),
    "... for one that is 1 ms too early": (
        claimed(1, superseded=1),
        lambda s: s.supersede(NOW + 1_999, NOW),
        AlarmSlot(NOW + 1_999, superseded=2),
        NOW + 2_000,
    ),
    "... for one that is 1 ms later": (
        claimed(1, superseded=1),
        lambda s: s.supersede(NOW + 2_001, NOW),
        AlarmSlot(NOW + 2_001, superseded=2),
        NOW + 2_001,
    ),
    "it is re-driven": (AlarmSlot(AT, MAX_ATTEMPTS, superseded=3), AlarmSlot.redrive, SET, AT),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_when(name: str) -> None:
    before, transition, after, look_at_ms = TRANSITIONS[name]
    assert transition(before) == PlannedSlot(after, look_at_ms)


AROUND = (-1, 0, 1)


@pytest.mark.parametrize("off", AROUND)
def test_a_lease_is_the_longer_of_its_own_and_the_wait_after_a_failure(off: int) -> None:
    """The third attempt's wait is 8 s."""
    for planned in (
        AlarmSlot(AT, 2).begin("t", 8_000 + off, NOW),
        claimed(3).keep(8_000 + off, NOW),
    ):
        assert planned == PlannedSlot(claimed(3), NOW + 8_000 + max(off, 0))


@pytest.mark.parametrize("off", AROUND)
def test_what_is_late_or_early_is_given_back_to_when_it_was_set_for(off: int) -> None:
    assert claimed(1).give_back(AT + off) == PlannedSlot(SET, AT)


@pytest.mark.parametrize("off", AROUND)
def test_given_back_for_a_while_counts_from_now(off: int) -> None:
    waiting = PlannedSlot(AlarmSlot(AT, waits=True), AT + off + 1)
    assert claimed(1).give_back(AT + off, 1) == waiting


@pytest.mark.parametrize("off", AROUND)
def test_what_came_early_is_looked_at_when_it_is_due_and_keeps_what_it_was_set_to(
    off: int,
) -> None:
    assert claimed(2, waits=True).move(AT + off) == PlannedSlot(SET, AT + off)


@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize(
    ("superseded", "wait_ms"),
    list(enumerate([0, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000, 64_000])),
)
def test_set_and_fail_again_and_again_waits_as_a_retry_does(
    superseded: int, wait_ms: int, off: int
) -> None:
    planned = claimed(1, superseded=superseded).supersede(NOW + wait_ms + off, NOW)
    following = AlarmSlot(NOW + wait_ms + off, superseded=superseded + 1)
    assert planned == PlannedSlot(following, NOW + wait_ms + max(off, 0))


@pytest.mark.parametrize(("attempts", "is_used_up"), [(0, False), (6, False), (7, True)])
def test_seven_attempts_are_all(attempts: int, is_used_up: bool) -> None:
    assert AlarmSlot(AT, attempts).is_used_up is is_used_up


def test_a_slot_begins_as_it_is_set() -> None:
    assert set_to(AT) == PlannedSlot(AlarmSlot(AT), AT)


def test_a_slot_is_a_value() -> None:
    with pytest.raises(AttributeError):
        SET.attempts = 1  # type: ignore[misc]
