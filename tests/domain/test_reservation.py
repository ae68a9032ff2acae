"""The rules of a reservation, told as: given this history, when this is asked, then that."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from reservation_expiry.domain.errors import (
    DomainError,
    InvalidNow,
    InvalidReservationId,
    InvalidTtl,
    NotDue,
    NotHeld,
)
from reservation_expiry.domain.events import AlarmScheduled, Expired, Held, ReservationEvent
from reservation_expiry.domain.ids import ID_PREFIX, aggregate_id, is_name
from reservation_expiry.domain.reservation import (
    MAX_NOW_MS,
    Reservation,
    apply,
    broken_rule,
    expire,
    hold,
    project,
    starts_anew,
)

SEAT = "reservation/seat-12"
T = 1_800_000_000_000
TTL_SECONDS = 60
DUE = T + TTL_SECONDS * 1000

History = tuple[ReservationEvent, ...]


@dataclass(frozen=True)
class Given:
    """A history, and what comes of asking something of the reservation that has it."""

    history: History

    @property
    def state(self) -> Reservation | None:
        return project(None, self.history)

    def when_held(self, ttl_seconds: int, at: int) -> "Outcome":
        return self._ask(lambda state: hold(state, SEAT, ttl_seconds, at))

    def when_expired(self, at: int) -> "Outcome":
        return self._ask(lambda state: expire(state, at))

    def _ask(self, decide: Callable[[Reservation | None], History]) -> "Outcome":
        try:
            return Outcome(self, decide(self.state), None)
        except DomainError as error:
            return Outcome(self, (), error)


@dataclass(frozen=True)
class Outcome:
    given: Given
    events: History
    error: DomainError | None

    def then(self, *events: ReservationEvent) -> Reservation | None:
        """Exactly these events were decided. The state after them."""
        assert self.error is None
        assert self.events == events
        return project(self.given.state, events)

    def then_refused(self, error_class: type[DomainError]) -> DomainError:
        assert type(self.error) is error_class
        return self.error


def given(*events: ReservationEvent) -> Given:
    return Given(events)


def held_from(start: int = T, *, version: int = 1, ttl_seconds: int = TTL_SECONDS) -> History:
    """What a hold records: two events, the first of version `version`."""
    end = start + ttl_seconds * 1000
    return (Held(SEAT, version, start, end), AlarmScheduled(SEAT, version + 1, end))


EXPIRED = (*held_from(), Expired(SEAT, 3, DUE))


def test_a_first_hold_begins_now_and_sets_the_alarm_for_its_end() -> None:
    state = (
        given()
        .when_held(TTL_SECONDS, at=T)
        .then(Held(SEAT, 1, T, DUE), AlarmScheduled(SEAT, 2, DUE))
    )
    assert state == Reservation(SEAT, 2, "held", T, DUE, None, 0, alarm_at_ms=DUE)


def test_a_hold_of_what_is_held_begins_anew_and_moves_the_alarm() -> None:
    later = T + 10_000
    state = (
        given(*held_from()).when_held(5, at=later).then(*held_from(later, version=3, ttl_seconds=5))
    )
    assert state == Reservation(SEAT, 4, "held", later, later + 5000, None, 0, later + 5000)


def test_a_hold_of_what_has_expired_resets_everything() -> None:
    later = DUE + 10_000
    state = given(*EXPIRED).when_held(TTL_SECONDS, at=later).then(*held_from(later, version=4))
    assert state == Reservation(
        SEAT, 5, "held", later, later + 60_000, None, 0, alarm_at_ms=later + 60_000
    )


# F89: a hold whose time is up, and whose alarm has not come by, is held anew


@pytest.mark.parametrize("late_ms", [0, 1, 3_600_000])
def test_f89_a_hold_of_what_is_overdue_ends_the_old_hold_first(late_ms: int) -> None:
    now = DUE + late_ms
    state = (
        given(*held_from())
        .when_held(TTL_SECONDS, at=now)
        .then(Expired(SEAT, 3, now), *held_from(now, version=4))
    )
    assert state == Reservation(
        SEAT, 5, "held", now, now + 60_000, None, 0, alarm_at_ms=now + 60_000
    )


def test_f89_a_hold_of_what_still_runs_ends_nothing_for_nothing_becomes_free() -> None:
    now = DUE - 1
    given(*held_from()).when_held(TTL_SECONDS, at=now).then(*held_from(now, version=3))


@for_any(st.lists(st.tuples(st.integers(-5_000, 5_000), st.integers(5, 10)), max_size=20))
def test_f89_every_hold_that_was_over_when_the_next_began_has_one_expired(
    steps: list[tuple[int, int]],
) -> None:
    """Whatever the clock does in between."""
    history, now = (), T
    for step_ms, ttl_seconds in steps:
        now += step_ms
        history += hold(project(None, history), SEAT, ttl_seconds, now)
    state = None
    for event in history:
        assert broken_rule(state, event) is None
        if type(event) is Held and state is not None and state.status == "held":
            assert state.expires_at_ms > event.created_at_ms
        state = apply(state, event)
    assert [event.originator_version for event in history] == list(range(1, len(history) + 1))


@pytest.mark.parametrize("ttl_seconds", [5, 6, 3599, 3600])
def test_a_hold_lasts_as_long_as_was_asked(ttl_seconds: int) -> None:
    given().when_held(ttl_seconds, at=T).then(*held_from(ttl_seconds=ttl_seconds))


@pytest.mark.parametrize("ttl_seconds", [-1, 0, 4, 3601, 10**9])
@pytest.mark.parametrize("history", [(), held_from(), EXPIRED], ids=["new", "held", "expired"])
def test_a_hold_is_refused_outside_5_to_3600_seconds(history: History, ttl_seconds: int) -> None:
    refused = given(*history).when_held(ttl_seconds, at=T).then_refused(InvalidTtl)
    assert str(refused) == f"a hold lasts from 5 to 3600 seconds, not {ttl_seconds}"


@pytest.mark.parametrize("late_ms", [0, 1, 3_600_000])
def test_an_alarm_at_or_after_the_instant_expires_the_hold(late_ms: int) -> None:
    state = given(*held_from()).when_expired(at=DUE + late_ms).then(Expired(SEAT, 3, DUE + late_ms))
    assert state == Reservation(SEAT, 3, "expired", T, DUE, DUE + late_ms, 1, alarm_at_ms=None)


@pytest.mark.parametrize("early_ms", [1, 5, 60_000])
def test_an_alarm_before_the_instant_is_refused_and_says_until_when(early_ms: int) -> None:
    refused = given(*held_from()).when_expired(at=DUE - early_ms).then_refused(NotDue)
    assert refused.expires_at_ms == DUE


def test_what_was_never_held_does_not_expire() -> None:
    given().when_expired(at=T).then_refused(NotHeld)


@pytest.mark.parametrize("offset_ms", [-1, 0, 1])
def test_what_has_expired_does_not_expire_again(offset_ms: int) -> None:
    given(*EXPIRED).when_expired(at=DUE + offset_ms).then_refused(NotHeld)


def test_the_alarm_of_an_older_hold_does_not_end_a_newer_one() -> None:
    newer = held_from(T + 1, version=3)
    given(*held_from(), *newer).when_expired(at=DUE).then_refused(NotDue)
    given(*held_from(), *newer).when_expired(at=DUE + 1).then(Expired(SEAT, 5, DUE + 1))


def test_a_second_hold_expires_once_more() -> None:
    again = held_from(DUE + 1, version=4)
    state = (
        given(*EXPIRED, *again).when_expired(at=DUE + 60_001).then(Expired(SEAT, 6, DUE + 60_001))
    )
    assert state.expiration_count == 1


@pytest.mark.parametrize("now_ms", [-1, 0, MAX_NOW_MS + 1])
@pytest.mark.parametrize("history", [(), held_from(), EXPIRED], ids=["new", "held", "expired"])
def test_a_clock_outside_the_safe_integers_is_refused(history: History, now_ms: int) -> None:
    given(*history).when_expired(at=now_ms).then_refused(InvalidNow)


@pytest.mark.parametrize(("now_ms", "error"), [(1, NotDue), (MAX_NOW_MS, None)])
def test_a_clock_at_either_end_of_the_safe_integers_is_a_clock(
    now_ms: int, error: type[DomainError] | None
) -> None:
    outcome = given(*held_from()).when_expired(at=now_ms)
    if error is None:
        outcome.then(Expired(SEAT, 3, now_ms))
    else:
        outcome.then_refused(error)


GOOD_NAMES = ["abc", "a-b", "000", "a--b", "seat-12", "a" * 40, "0" + "-" * 38 + "z"]
BAD_NAMES = [
    "",
    "a",
    "ab",
    "a" * 41,
    "-ab",
    "ab-",
    "---",
    "Abc",
    "abC",
    "a_b",
    "a b",
    "a.b",
    "a/b",
    "..",
    "../abc",
    "abc\n",
    "\nabc",
    "abc\0",
    "ab\u0661",  # a digit, but not one of ours
    "\uff41bc",  # a letter, but not one of ours
    "caf\u00e9",
    "\U0001f600\U0001f600\U0001f600",
]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_name_of_3_to_40_letters_digits_and_inner_hyphens_is_an_id(name: str) -> None:
    assert is_name(name)
    assert aggregate_id(name) == ID_PREFIX + name


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_any_other_name_is_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(InvalidReservationId) as refused:
        aggregate_id(name)
    assert repr(name) in str(refused.value)


@for_any(st.text(max_size=45))
def test_a_name_is_one_by_its_characters_and_length_alone(name: str) -> None:
    ours = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    right = 3 <= len(name) <= 40 and set(name) <= ours and name == name.strip("-")
    assert is_name(name) == right


def test_a_reservation_is_called_by_its_name() -> None:
    assert given(*held_from()).state.name == "seat-12"


def test_only_a_hold_starts_anew() -> None:
    assert [starts_anew(event) for event in EXPIRED] == [True, False, False]


@pytest.mark.parametrize("event", EXPIRED[1:], ids=lambda event: type(event).__name__)
def test_an_event_of_a_hold_that_never_was_leaves_nothing(event: ReservationEvent) -> None:
    assert apply(None, event) is None


BROKEN = {
    "a hold of no length": ((), Held(SEAT, 1, T, T), "a hold of no length"),
    "an end of nothing": ((), EXPIRED[2], "Expired where nothing is held"),
    "a second end": (EXPIRED, Expired(SEAT, 4, DUE), "Expired where nothing is held"),
    "an end too soon": (
        held_from(),
        Expired(SEAT, 3, DUE - 1),
        f"Expired at {DUE - 1}, before {DUE}",
    ),
    "an alarm for another time": (
        held_from()[:1],
        AlarmScheduled(SEAT, 2, DUE + 1),
        f"AlarmScheduled for {DUE + 1}, not {DUE}",
    ),
    "an alarm of what has ended": (
        EXPIRED,
        AlarmScheduled(SEAT, 4, DUE),
        "AlarmScheduled where nothing is held",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_log_that_the_rules_would_not_have_written_is_told_from(kind: str) -> None:
    history, event, problem = BROKEN[kind]
    assert broken_rule(given(*history).state, event) == problem


instants = st.integers(T, T + 7_200_000)
asked = st.one_of(
    st.tuples(st.just("hold"), st.integers(5, 3600), instants),
    st.tuples(st.just("expire"), st.none(), instants),
)


def decided(questions: list[tuple[str, Any, int]]) -> Iterator[tuple[Reservation | None, History]]:
    """(state before, events) of each question that was not refused."""
    state = None
    for kind, ttl_seconds, at in questions:
        try:
            if kind == "hold":
                events: History = hold(state, SEAT, ttl_seconds, at)
            else:
                events = expire(state, at)
        except DomainError:
            continue
        yield state, events
        state = project(state, events)


@for_any(st.lists(asked, max_size=20))
def test_whatever_is_asked_every_hold_ends_at_most_once_and_never_early(questions: list) -> None:
    log = [event for _, events in decided(questions) for event in events]
    ends_at = None
    for version, event in enumerate(log, start=1):
        assert event.originator_version == version
        if type(event) is Held:
            ends_at = event.expires_at_ms
        elif type(event) is Expired:
            assert ends_at is not None
            assert event.expired_at_ms >= ends_at
            ends_at = None


@for_any(st.lists(asked, max_size=20))
def test_whatever_is_decided_breaks_no_rule_of_a_log(questions: list) -> None:
    for state, events in decided(questions):
        for event in events:
            assert broken_rule(state, event) is None
            state = apply(state, event)
        ends_at = state.expires_at_ms if state.status == "held" else None
        assert state.alarm_at_ms == ends_at
