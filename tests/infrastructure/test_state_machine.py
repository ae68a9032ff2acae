"""Whatever happens, in whatever order: the invariants hold, and a dict knows what comes out.

Hypothesis makes up sequences of holds, alarms (early, late, twice, outlived), explicit
expiries, steps of the clock, restarts and losses of projected rows. The model is a plain
dict that knows nothing of events, alarms or tables. What must be true of the file after
each step is checked by `check_invariants`, with SQL of its own.
"""

from collections import defaultdict
from collections.abc import Callable
from io import BytesIO
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.domain.ids import ID_PREFIX
from reservation_expiry.domain.reservation import project
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.invariants import alarms, check_invariants

NAMES = ["seat-1", "seat-2", "seat-3"]
names = st.sampled_from(NAMES)
around = st.sampled_from([-60_000, -1, 0, 1, 3_600_000])  # ms from when a hold is due


class Reservations(RuleBasedStateMachine):
    """The service on one database, beside a model of what it is to say."""

    def __init__(self, new_address: Callable[[], Address]) -> None:
        super().__init__()
        self.new_address = new_address

    @initialize()
    def open(self) -> None:
        self.address = self.new_address()
        self.clock = ManualClock()
        self.batches: list[list[Claim]] = []  # claimed, and settled never, once or again
        self.model: dict[str, dict[str, Any]] = {}
        self.serve()

    def serve(self) -> int:
        repaired = prepare(self.address).repaired
        self.log = BytesIO()
        self.application = ReservationApplication(self.address, self.clock, AlarmLog(self.log))
        self.application.start(alarms=False)
        return repaired

    def teardown(self) -> None:
        self.application.stop()

    # The model: what it says, and when an expiry is allowed.

    def is_due(self, name: str, now_ms: int) -> bool:
        row = self.model.get(name)
        return row is not None and row["status"] == "held" and row["expires_at_ms"] <= now_ms

    def is_held(self, name: str) -> bool:
        return name in self.model and self.model[name]["status"] == "held"

    def becomes_held(self, name: str, ttl_seconds: int) -> None:
        now_ms = self.clock.now_ms()
        if self.is_due(name, now_ms):
            self.becomes_expired(name, now_ms)
        self.model[name] = {
            "version": self.model.get(name, {"version": 0})["version"] + 2,
            "status": "held",
            "created_at_ms": now_ms,
            "expires_at_ms": now_ms + ttl_seconds * 1000,
            "expired_at_ms": None,
            "expiration_count": 0,
            "alarm_at_ms": now_ms + ttl_seconds * 1000,
        }

    def becomes_expired(self, name: str, now_ms: int) -> None:
        row = self.model[name]
        row.update(version=row["version"] + 1, status="expired", expired_at_ms=now_ms)
        row.update(expiration_count=row["expiration_count"] + 1, alarm_at_ms=None)

    # What may happen.

    @rule(name=names, ttl_seconds=st.sampled_from([5, 6, 60, 3600]))
    def hold(self, name: str, ttl_seconds: int) -> None:
        self.becomes_held(name, ttl_seconds)
        assert said(self.application.hold(name, ttl_seconds)) == self.model[name]

    @rule(name=names, offset_ms=around)
    def expire_by_any_clock(self, name: str, offset_ms: int) -> None:
        now_ms = self.model.get(name, {"expires_at_ms": 10**6})["expires_at_ms"] + offset_ms
        due = self.is_due(name, now_ms)
        if due:
            self.becomes_expired(name, now_ms)
        state, changed = self.application.expire(name, now_ms)
        assert changed == due
        assert (None if state is None else said(state)) == self.model.get(name)

    @rule(by_ms=st.sampled_from([1, 999, 4_999, 5_000, 5_001, 60_000, 3_600_000, -1, -7_000]))
    def step_the_clock(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule(name=names, offset_ms=around)
    def step_the_clock_to_where_a_hold_is_due(self, name: str, offset_ms: int) -> None:
        if name in self.model:
            self.clock.move_to(self.model[name]["expires_at_ms"] + offset_ms)

    @rule()
    def claim(self) -> None:
        claims = self.application.alarm_dispatcher.claim()
        if claims:
            self.batches.append(claims)

    @precondition(lambda self: self.batches)
    @rule(pick=st.integers(0, 20), again=st.booleans())
    def settle(self, pick: int, again: bool) -> None:
        """A batch claimed now or long ago, perhaps settled before, perhaps after a restart."""
        batch = self.batches[pick % len(self.batches)]
        if not again:
            self.batches.remove(batch)
        self.ring(batch)

    @rule(name=names)
    def an_alarm_comes_unasked(self, name: str) -> None:
        """Early, late or of nothing; its claim is the row as it stands, if there is one."""
        _, job_state = alarms(self.address).get(name, (None, alarm_row.encode(AlarmSlot(1))))
        self.ring([Claim(ID_PREFIX + name, alarm_row.decode(job_state), job_state)])

    def ring(self, claims: list[Claim]) -> None:
        now_ms, outcomes = self.clock.now_ms(), []
        for claim in claims:
            name = claim.id.removeprefix(ID_PREFIX)
            outcomes.append("ok" if self.is_due(name, now_ms) else "rejected")
            if outcomes[-1] == "ok":
                self.becomes_expired(name, now_ms)
        before = len(self.log.getvalue())
        self.application.alarm_dispatcher.settle(claims)
        lines = self.log.getvalue()[before:].splitlines()
        assert [msgspec.json.decode(line)["outcome"] for line in lines] == outcomes

    @rule()
    def restart(self) -> None:
        self.application.stop()
        assert self.serve() == 0

    @rule(name=names, table=st.sampled_from(["alarms", "reservations"]))
    def lose_a_row_of_an_open_hold_and_restart(self, name: str, table: str) -> None:
        if self.is_held(name):
            self.application.stop()
            self.lose(name, table)
            assert self.serve() == 1

    @rule(name=names)
    def lose_an_alarm_and_sweep(self, name: str) -> None:
        self.lose(name, "alarms")
        assert self.application.sweep() == self.is_held(name)

    @rule(lost=st.sets(st.tuples(names, st.sampled_from(["alarms", "reservations"]))))
    def lose_rows_and_rebuild(self, lost: set[tuple[str, str]]) -> None:
        gone = sum(self.lose(name, table) for name, table in lost)
        report = rebuild(self.application.writer.execute, self.application.mapper)
        assert report.repaired == gone

    def lose(self, name: str, table: str) -> int:
        column, value = ("id", ID_PREFIX + name) if table == "alarms" else ("name", name)
        where = f"WHERE {column} = ?"
        rows = len(sql(self.address, f"SELECT 1 FROM {table} {where}", value))
        sql(self.address, f"DELETE FROM {table} {where}", value)
        return rows

    # What is true after each step.

    @invariant()
    def the_database_is_whole(self) -> None:
        log = check_invariants(self.address)
        assert log.counts()["Held"] == log.counts()["AlarmScheduled"]

    @invariant()
    def the_service_says_what_the_model_says(self) -> None:
        read_model = self.application.queries.reservations(limit=10)
        assert {state.name: said(state) for state in read_model} == self.model
        assert {state.name: state for state in read_model} == self.replayed()

    def replayed(self) -> dict[str, Any]:
        events = defaultdict(list)
        for row in self.application.queries.events_after(0, 10_000):
            event = self.application.mapper.decode(
                row.originator_id, row.originator_version, row.topic, row.state
            )
            events[row.originator_id.removeprefix(ID_PREFIX)].append(event)
        return {name: project(None, history) for name, history in events.items()}


def said(state: Any) -> dict[str, Any]:
    """A reservation as the model has it, which knows nothing of terms."""
    assert (state.ended_at_ms, state.terms) == (None, None)
    known = state._asdict().keys() - {"id", "ended_at_ms", "terms"}
    return {key: getattr(state, key) for key in known}


def test_whatever_happens(store: str, new_address: Callable[[], Address]) -> None:
    examples = 25 if store == "sqlite" else 6  # the other store's statements are the same
    run_state_machine_as_test(
        lambda: Reservations(new_address),
        settings=settings(max_examples=examples, stateful_step_count=30, deadline=None),
    )
