"""Holds with terms: given a state, when a command, then events or a refusal."""

import pytest

from reservation_expiry.domain import guarded
from reservation_expiry.domain.errors import HoldRefused
from reservation_expiry.domain.events import (
    AlarmScheduled,
    Cancelled,
    Confirmed,
    Extended,
    Held,
    Released,
    ReservationEvent,
)
from reservation_expiry.domain.reservation import Reservation, project
from reservation_expiry.domain.terms import MAX_EXTENSIONS, Line, Terms, summed

ID = "reservation/cart-1"
NOW, DUE, UNTIL = 1_000_000, 1_060_000, 2_000_000
SECRET, OTHER = "5" * 64, "6" * 64
TERMS = Terms(UNTIL, (Line("seat", 1),), SECRET)
HELD = (Held(ID, 1, NOW, DUE, TERMS), AlarmScheduled(ID, 2, DUE))


def given(*events: ReservationEvent) -> Reservation | None:
    return project(None, events)


def refusal(code: str) -> object:
    return pytest.raises(HoldRefused, check=lambda error: error.code == code)


def test_what_is_free_is_put() -> None:
    assert guarded.put(None, ID, TERMS, 60, SECRET, NOW) == HELD


def test_what_is_held_is_put_again_by_its_holder_alone() -> None:
    state = given(*HELD)
    assert guarded.put(state, ID, TERMS, 60, SECRET, NOW + 1)[0] == Held(
        ID, 3, NOW + 1, DUE + 1, TERMS
    )
    with refusal("already-held"):
        guarded.put(state, ID, TERMS, 60, OTHER, NOW + 1)
    with refusal("already-held"):
        guarded.put(state, ID, TERMS, 60, None, NOW + 1)


def test_a_hold_of_the_contracts_route_is_not_taken_over() -> None:
    state = given(Held(ID, 1, NOW, DUE), AlarmScheduled(ID, 2, DUE))
    with refusal("already-held"):
        guarded.put(state, ID, TERMS, 60, SECRET, NOW)


def test_extending_moves_the_deadline_and_its_alarm() -> None:
    found = guarded.extend(given(*HELD), SECRET, DUE + 5, False)
    assert found == (Extended(ID, 3, DUE + 5), AlarmScheduled(ID, 4, DUE + 5))
    state = given(*HELD, *found)
    assert state is not None
    assert (state.expires_at_ms, state.alarm_at_ms, state.version) == (DUE + 5, DUE + 5, 4)


@pytest.mark.parametrize(
    ("at_ms", "shorten", "code"),
    [
        (UNTIL + 1, False, "beyond-until"),
        (DUE - 1, False, "would-shorten"),
    ],
)
def test_an_extension_stays_within_its_bounds(at_ms: int, shorten: bool, code: str) -> None:
    with refusal(code):
        guarded.extend(given(*HELD), SECRET, at_ms, shorten)
    assert guarded.extend(given(*HELD), SECRET, UNTIL, False)
    assert guarded.extend(given(*HELD), SECRET, DUE - 1, True)


def test_extensions_are_counted() -> None:
    state = given(*HELD)
    for _ in range(MAX_EXTENSIONS):
        events = guarded.extend(state, SECRET, DUE, False)
        state = project(state, events)
    with refusal("too-many-extensions"):
        guarded.extend(state, SECRET, DUE, False)


ENDINGS = {
    "confirmed": Confirmed(ID, 3, NOW + 1),
    "released": Released(ID, 3, NOW + 1),
}


@pytest.mark.parametrize(("status", "event"), ENDINGS.items())
def test_a_hold_ends_once(status: str, event: ReservationEvent) -> None:
    end = guarded.confirm if status == "confirmed" else guarded.release
    other = guarded.release if status == "confirmed" else guarded.confirm
    assert end(given(*HELD), SECRET, NOW + 1) == (event,)
    state = given(*HELD, event)
    assert state is not None
    assert (state.status, state.alarm_at_ms, state.ended_at_ms) == (status, None, NOW + 1)
    assert end(state, SECRET, NOW + 2) == (), "said again, it changes nothing"
    with refusal(f"already-{status}"):
        other(state, SECRET, NOW + 2)
    with refusal(f"already-{status}"):
        guarded.extend(state, SECRET, DUE, False)


def test_what_was_confirmed_is_cancelled_once() -> None:
    state = given(*HELD, Confirmed(ID, 3, NOW + 1))
    assert guarded.cancel(state, SECRET, NOW + 2) == (Cancelled(ID, 4, NOW + 2),)
    gone = given(*HELD, Confirmed(ID, 3, NOW + 1), Cancelled(ID, 4, NOW + 2))
    assert guarded.cancel(gone, SECRET, NOW + 3) == ()
    with refusal("not-confirmed"):
        guarded.cancel(given(*HELD), SECRET, NOW + 2)
    with refusal("already-cancelled"):
        guarded.confirm(gone, SECRET, NOW + 3)


@pytest.mark.parametrize("command", [guarded.confirm, guarded.release, guarded.cancel])
def test_nobody_acts_on_anothers_hold(command: object) -> None:
    for secret in (OTHER, None):
        with refusal("not-yours"):
            command(given(*HELD), secret, NOW)  # type: ignore[operator]
    with refusal("hold-not-found"):
        command(None, SECRET, NOW)  # type: ignore[operator]


def test_without_a_token_anybody_acts() -> None:
    open_terms = Terms(UNTIL, (), None)
    state = given(Held(ID, 1, NOW, DUE, open_terms), AlarmScheduled(ID, 2, DUE))
    assert guarded.confirm(state, None, NOW)
    assert guarded.confirm(state, OTHER, NOW)


def test_lines_of_one_item_are_one() -> None:
    lines = (Line("a", 1), Line("b", 2), Line("a", 3))
    assert summed(lines) == (Line("a", 4), Line("b", 2))
