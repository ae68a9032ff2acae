"""Alarms that end their process: they are found, given up, and nobody else is counted."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reservation_expiry.domain.alarm import MAX_ATTEMPTS, company_after
from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.alarm_row import row_set_to
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.claims import ClaimDueAlarms, Claimed, FailAlarms
from reservation_expiry.infrastructure.alarms.company import (
    Crowd,
    choose,
    is_counted,
    new_token,
    together_at,
)
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.row_types import AlarmScope
from tests.support.clock import ManualClock
from tests.support.database import sql

SCOPE = AlarmScope(("reservation/", "object/A/"), "me")


@dataclass
class Simulation:
    """Processes that begin what `choose` says, one after the other, until one of the
    `killers` ends the process; then the next goes on with what is left."""

    rows: dict[str, AlarmSlot]
    killers: set[str]
    random: Random
    parked: set[str] = field(default_factory=set)
    begun: dict[str, list[int]] = field(default_factory=dict)
    deaths: int = 0
    passes: int = 0

    def run(self) -> None:
        while self.rows:
            self.passes += 1
            assert self.passes < 5_000, "it comes to no end"
            for id, state in list(self.rows.items()):
                if is_counted(state) and state.attempts >= MAX_ATTEMPTS:
                    del self.rows[id]
                    self.parked.add(id)
            self._process()

    def _process(self) -> None:
        chosen = choose(self.rows.items(), Crowd())
        claims = []
        for (id, state), together in chosen.claims:
            attempts = state.attempts + is_counted(state)
            self.rows[id] = state._replace(attempts=attempts, token=new_token(together))
            claims.append(id)
        self.random.shuffle(claims)
        for id in claims:
            self.begun.setdefault(id, []).append(self.rows[id].attempts - 1)
            if id in self.killers:
                self.deaths += 1
                return
            if self.random.random() < 0.7:
                del self.rows[id]  # it has ended; else it ends later, if the process lives
        for id in claims:
            self.rows.pop(id, None)


@settings(max_examples=60, deadline=None)
@given(
    innocents=st.integers(0, 600),
    killers=st.integers(1, 4),
    reservations=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_f73_killers_are_found_and_parked_and_innocents_never_counted(
    innocents: int, killers: int, reservations: bool, seed: int
) -> None:
    kind = "reservation/" if reservations else "object/A/"
    ids = [f"{kind}i{n}" for n in range(innocents)] + [f"{kind}k{n}" for n in range(killers)]
    random = Random(seed)
    random.shuffle(ids)
    guilty = {id for id in ids if "/k" in id}
    story = Simulation({id: AlarmSlot(1) for id in ids}, guilty, random)
    story.run()
    assert story.parked == guilty
    retried = {n for id, counts in story.begun.items() if id not in guilty for n in counts}
    assert retried <= {0}  # no innocent was ever told of a retry
    # Each is counted seven times; besides, at most two companies of it died, or of another's.
    assert story.deaths <= killers * (MAX_ATTEMPTS + 3)


def test_f73_a_reservation_is_not_suspected_where_an_object_was_beside_it() -> None:
    due = [("reservation/r-1", AlarmSlot(1)), ("object/A/k", AlarmSlot(1))]
    together = {id: n for (id, _), n in choose(due, Crowd()).claims}
    assert together == {"reservation/r-1": 2, "object/A/k": 1}


@pytest.mark.parametrize(("together", "company"), [(1, 1), (2, 1), (31, 1), (32, 2), (500, 31)])
def test_the_next_company_is_a_small_part_of_the_last(together: int, company: int) -> None:
    assert company_after(together) == company


@pytest.mark.parametrize("together", [1, 2, 17, 1_500])
def test_a_token_says_how_many_were_together_and_is_unique(together: int) -> None:
    token = new_token(together)
    assert together_at(token) == together
    assert token != new_token(together)


@pytest.mark.parametrize("token", ["a" * 32, "", "x+", "+y", "x+1.5"])
def test_a_token_of_before_or_of_garbage_was_alone(token: str) -> None:
    assert together_at(token) == 1


# In the database: rows, claims and leases.


@pytest.fixture
def due(application: ReservationApplication, clock: ManualClock, address: Address) -> Any:
    def make(*ids: str) -> None:
        for id in ids:
            name, seconds, state = row_set_to(id, clock.now_ms())
            sql(address, f"INSERT INTO alarms VALUES (?, ?, x'{state.hex()}')", name, seconds)

    return make


def claim(application: ReservationApplication, *under_way: Claim, **crowd: Any) -> Claimed:
    work = ClaimDueAlarms(500, 5_000, SCOPE, Crowd(len(under_way), **crowd), under_way)
    return application.writer.execute(work)


def counts(claimed: Claimed) -> list[tuple[str, int]]:
    return [(c.id[-1], c.retry_count) for c in claimed.claims]


def test_f73_after_an_end_of_two_each_is_alone_and_only_the_killer_counted(
    application: ReservationApplication, clock: ManualClock, address: Address, due: Any
) -> None:
    due("object/A/i", "object/A/k")
    assert sorted(counts(claim(application))) == [("i", 0), ("k", 0)]
    clock.advance(5_001)  # the process has ended
    first = claim(application)
    assert counts(first) == [(first.claims[0].id[-1], 0)]
    sql(address, "DELETE FROM alarms WHERE id = 'object/A/i'")  # alone or not, it has ended well
    seen = []
    for _ in range(MAX_ATTEMPTS + 2):
        clock.advance(200_000)
        seen += [retry_count for _, retry_count in counts(claim(application))]
    # Claimed alone first now, or in the first claim above: then that was the first.
    assert seen in ([0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])
    assert sql(address, "SELECT id, next_run_time FROM alarms") == [("object/A/k", None)]


def test_f73_a_failure_ends_the_suspicion(
    application: ReservationApplication, clock: ManualClock, address: Address, due: Any
) -> None:
    due("object/A/i", "object/A/k")
    claim(application)
    clock.advance(5_001)
    (suspect,) = claim(application).claims
    assert suspect.cut_off
    application.writer.execute(FailAlarms([(suspect, RuntimeError("on purpose"))]))
    sql(address, "DELETE FROM alarms WHERE id <> ?", suspect.id)
    clock.advance(60_000)
    (again,) = claim(application).claims
    assert (again.cut_off, again.retry_count) == (False, 1)


def test_f73_suspects_wait_for_what_runs_and_then_no_longer(
    application: ReservationApplication, clock: ManualClock, due: Any
) -> None:
    due("object/A/i", "object/A/k")
    claim(application)
    clock.advance(5_001)
    other = Claim("object/A/o", AlarmSlot(1, 1, new_token(1)), b"")
    held = claim(application, other, may_wait=True)
    assert (held.claims, held.waiting) == ([], True)
    assert len(claim(application, other, may_wait=False).claims) == 1


def test_f73_what_was_alone_and_has_company_now_is_not_counted_for_it(
    application: ReservationApplication, clock: ManualClock, address: Address, due: Any
) -> None:
    due("object/A/l")
    (alone,) = claim(application).claims
    due("object/A/k")
    beside = claim(application, alone, fresh=(alone.id,))
    (joined,) = beside.joined
    (row,) = sql(address, "SELECT job_state FROM alarms WHERE id = 'object/A/l'")
    assert bytes(row[0]) == joined.job_state
    assert [together_at(c.slot.token) for c in (joined, *beside.claims)] == [2, 2]
    clock.advance(5_001)
    assert [retry_count for _, retry_count in counts(claim(application))] == [0]


def test_an_older_release_reads_the_rows_of_this_one() -> None:
    state = AlarmSlot(1, 1, new_token(17))
    assert alarm_row.encode(state) == msgspec.json.encode(
        {"v": 1, "scheduled_time": 1, "attempts": 1, "token": state.token}
    )
