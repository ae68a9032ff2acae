"""What is done to alarms, as work for the writer: claim, settle, give back, re-drive.

An alarm row leaves in two ways only. A transaction that ends a hold deletes it by id,
for the aggregate's version fences that already. Everything else (reject, retry, park,
give back) is a compare-and-swap on the claim's own bytes, so that a claim which has been
outlived can neither delete nor move a newer alarm.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import random

from reservation_expiry.domain.alarm import MAX_ATTEMPTS, Outcome
from reservation_expiry.domain.alarm_slot import AlarmSlot, PlannedSlot
from reservation_expiry.domain.errors import NotDue, NotHeld
from reservation_expiry.domain.ids import ID_PREFIX, is_object
from reservation_expiry.domain.reservation import expire
from reservation_expiry.infrastructure.alarm_row import UnreadableAlarm, decode, row_of
from reservation_expiry.infrastructure.alarms.attempt import Attempt, Claim
from reservation_expiry.infrastructure.alarms.company import (
    NOBODY,
    Chosen,
    Crowd,
    choose,
    is_counted,
    new_token,
    together_at,
)
from reservation_expiry.infrastructure.errors import UndecodableEvent, is_of_one
from reservation_expiry.infrastructure.stores.row_types import AlarmScope, AttemptFacts
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

RESERVATIONS = AlarmScope((ID_PREFIX,))
FORGOTTEN_AT_ONCE = 5_000  # kept attempts
UNREADABLE = "its row cannot be read"
NEVER_SETTLED = f"it was begun {MAX_ATTEMPTS} times and not settled: it may end its process"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Claimed:
    """What one claim brought: alarms to work on, and what happened on the way."""

    claims: list[Claim] = field(default_factory=list)
    lapsed: int = 0  # claims, anybody's, that had outlived their lease
    parked: list[str] = field(default_factory=list)  # unreadable, or begun too often
    joined: list[Claim] = field(default_factory=list)  # of objects, that have company now
    waiting: bool = False  # suspects, for what is under way here to end (company.py)


class ClaimDueAlarms(Work):
    """Marks up to `limit` due alarms as ours for `lease_ms`. Returns a Claimed.

    A claim counts as an attempt begun, durably, and its lease is never shorter than the
    wait after a failure would be. So a handler which kills its process backs off and is
    parked in the end like any other; those that were only beside it are not counted
    (company.py). Rows that another process is claiming are passed over.
    """

    keeps_house = True

    on_tables = True
    appends = False

    def __init__(
        self,
        limit: int,
        lease_ms: int,
        scope: AlarmScope = RESERVATIONS,
        crowd: Crowd = NOBODY,
        under_way: Sequence[Claim] = (),
    ) -> None:
        self._limit = limit
        self._lease_ms = lease_ms
        self._scope = scope
        self.claims: list[Claim] = []  # what was marked, should nobody hear of the result
        self._crowd = crowd
        self._under_way = under_way

    def run(self, unit: UnitOfWork) -> Claimed:
        unit.session.head()  # or nobody would hear that the log was deleted
        claimed, due = Claimed(), []
        for alarm_id, _, job_state in unit.session.due_alarms(
            unit.now_ms, self._limit, self._scope
        ):
            slot = _readable(alarm_id, job_state)
            if slot is None or (is_counted(slot) and slot.is_used_up):
                unit.session.park_alarm(alarm_id, job_state)
                claimed.parked.append(alarm_id)
                unit.keep_attempts([_given_up(alarm_id, slot, unit.now_ms)])
            else:
                due.append((alarm_id, slot))
        chosen = choose(due, self._crowd)
        claimed.waiting = chosen.waiting
        self._claim(unit, claimed, chosen)
        self._join(unit, claimed, chosen)
        self.claims[:] = claimed.claims
        unit.flush_attempts()
        return claimed

    def _claim(self, unit: UnitOfWork, claimed: Claimed, chosen: Chosen) -> None:
        tokens: dict[int, str] = {}
        rows = []
        for (alarm_id, slot), together in chosen.claims:
            token = tokens.get(together)
            if token is None:
                token = tokens[together] = new_token(together)
            counts = is_counted(slot)
            planned = slot.begin(token, self._lease_ms, unit.now_ms, counts=counts)
            row = row_of(alarm_id, planned)
            claimed.lapsed += slot.token is not None
            cut_off = 0 if slot.token is None else together_at(slot.token)
            claimed.claims.append(Claim(alarm_id, planned.slot, row[2], cut_off))
            rows.append(row)
        if rows:
            unit.session.put_alarms(rows)

    def _join(self, unit: UnitOfWork, claimed: Claimed, chosen: Chosen) -> None:
        """Notes that those who were alone until now are not any more."""
        for claim in self._under_way:
            if claim.id in chosen.joined:
                slot = claim.slot._replace(token=new_token(2))
                row = row_of(claim.id, slot.keep(self._lease_ms, unit.now_ms))
                if unit.session.replace_alarm(claim.job_state, row):
                    claimed.joined.append(Claim(claim.id, slot, row[2], claim.cut_off))


class SettleAlarms(Work):
    """Runs the alarm of each claimed reservation, all in one transaction.

    Returns one Attempt per claim, in order. One that fails fails alone.
    """

    keeps_house = True

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.aggregate_ids = [claim.id for claim in claims]

    def run(self, unit: UnitOfWork) -> list[Attempt]:
        attempts = [self._settle(unit, claim) for claim in self.claims]
        unit.keep_attempts([attempt.facts for attempt in attempts])
        return attempts

    def _settle(self, unit: UnitOfWork, claim: Claim) -> Attempt:
        try:
            unit.append(claim.id, expire(unit.reservation(claim.id), unit.now_ms))
        except NotHeld:
            unit.after_flush(lambda: unit.session.remove_alarm(claim.id, claim.job_state))
            return Attempt(claim, "rejected", unit.now_ms)
        except NotDue as early:
            end_claim(unit, claim, claim.slot.move(early.expires_at_ms))
            return Attempt(claim, "rejected", unit.now_ms)
        except Exception as error:
            if unit.session.is_aborted or not is_of_one(error):
                raise  # there is no transaction any more to count it in
            return fail(unit, claim, error)
        return Attempt(claim, "ok", unit.now_ms)


class GiveBackAlarms(Work):
    """Gives claims back as if they had never been made, due again at once or after a while.

    For claims whose transaction met a busy or lost database, or whose object is elsewhere:
    that is not the handler's fault, so it uses up no attempt.
    """

    keeps_house = True

    def __init__(self, claims: list[Claim], after_ms: int = 0) -> None:
        self.claims = claims
        self._after_ms = after_ms

    def run(self, unit: UnitOfWork) -> None:
        for claim in self.claims:
            end_claim(unit, claim, claim.slot.give_back(unit.now_ms, self._after_ms))


class FailAlarms(Work):
    """Counts attempts that could not be settled as failed. Returns an Attempt for each."""

    keeps_house = True

    def __init__(
        self, failures: Sequence[tuple[Claim, Exception]], began_at_ms: int | None = None
    ) -> None:
        self._failures = failures
        self._began_at_ms = began_at_ms

    def run(self, unit: UnitOfWork) -> list[Attempt]:
        attempts = [fail(unit, claim, e, self._began_at_ms) for claim, e in self._failures]
        unit.keep_attempts([attempt.facts for attempt in attempts])
        return attempts


class ForgetAttempts(Work):
    """Deletes the oldest of the kept attempts, those before an id. Returns whether there may
    be more: each time it is a few, so that nobody waits for it long."""

    appends = False
    keeps_house = True
    on_tables = True

    def __init__(self, before_id: str) -> None:
        self._before_id = before_id

    def run(self, unit: UnitOfWork) -> bool:
        return unit.session.forget_attempts(self._before_id, FORGOTTEN_AT_ONCE) > 0


class RedriveAlarm(Work):
    """Gives a parked alarm a fresh start. Returns whether there is one to run now.

    The log says what it is for; where the log cannot be read, the row does.
    """

    def __init__(self, alarm_id: str) -> None:
        self._alarm_id = alarm_id
        self.aggregate_ids = () if is_object(alarm_id) else (alarm_id,)

    def run(self, unit: UnitOfWork) -> bool:
        alarm_id = self._alarm_id
        try:
            state = unit.reproject_any(alarm_id)
        except UndecodableEvent:
            return self._restart(unit, alarm_id)
        return state is not None and state.alarm_at_ms is not None

    def _restart(self, unit: UnitOfWork, alarm_id: str) -> bool:
        row = unit.session.alarm(alarm_id)
        readable = row and _readable(alarm_id, row[2])
        if readable:
            fresh = row_of(alarm_id, readable.redrive())
            unit.after_flush(lambda: unit.session.put_alarms([fresh]))
        return bool(readable)


def fail(
    unit: UnitOfWork, claim: Claim, error: Exception, began_at_ms: int | None = None
) -> Attempt:
    """The retry rule: later and later, then parked."""
    planned = claim.slot.fail(unit.now_ms, random())
    end_claim(unit, claim, planned)
    outcome: Outcome = "parked" if planned.look_at_ms is None else "retry"
    return Attempt(claim, outcome, unit.now_ms, error, began_at_ms)


def end_claim(unit: UnitOfWork, claim: Claim, planned: PlannedSlot) -> None:
    """Has the slot be as it is planned, if the claim still stands."""
    row = row_of(claim.id, planned)
    unit.after_flush(lambda: unit.session.replace_alarm(claim.job_state, row))


def _readable(alarm_id: str, job_state: bytes) -> AlarmSlot | None:
    try:
        return decode(job_state)
    except UnreadableAlarm as error:
        logger.error("the alarm of %s cannot be read and is parked: %s", alarm_id, error)
        return None


def _given_up(alarm_id: str, slot: AlarmSlot | None, now_ms: int) -> AttemptFacts:
    """The last that is to be told of an alarm that is not begun any more."""
    if slot is None:
        return AttemptFacts(alarm_id, None, now_ms, now_ms, "parked", 0, 0, None, UNREADABLE)
    scheduled_ms, late_ms = slot.scheduled_time, now_ms - slot.scheduled_time
    retries = slot.attempts - 1
    return AttemptFacts(
        alarm_id, None, scheduled_ms, now_ms, "parked", retries, late_ms, None, NEVER_SETTLED
    )
