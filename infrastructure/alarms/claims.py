"""What is done to alarms, as work for the writer: claim, settle, release, re-drive.

An alarm row leaves in two ways only. A transaction that ends a hold deletes it by id,
for the aggregate's version fences that already. Everything else (reject, retry, park,
release) is a compare-and-swap on the claim's own bytes, so that a claim which has been
outlived can neither delete nor move a newer alarm.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import random

import msgspec

from reservation_expiry.domain.alarm import (
    MAX_ATTEMPTS,
    Outcome,
    next_attempt_at_ms,
    retry_delay_ms,
)
from reservation_expiry.domain.durable_object import OBJECT_PREFIX
from reservation_expiry.domain.errors import NotDue, NotHeld
from reservation_expiry.domain.reservation import ID_PREFIX, expire
from reservation_expiry.infrastructure import alarm_state
from reservation_expiry.infrastructure.alarm_state import AlarmState, UnreadableAlarm
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
from reservation_expiry.infrastructure.projections import alarm_row
from reservation_expiry.infrastructure.stores.row_types import AlarmScope
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

RESERVATIONS = AlarmScope((ID_PREFIX,))

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """One alarm that this process may work on until its lease ends.

    `cut_off` is with how many it was under way, itself included, when an earlier claim of
    it outlived its lease without being settled; 0 if none has.
    """

    id: str
    state: AlarmState
    job_state: bytes  # `state` as it stands in the row
    cut_off: int = 0

    @property
    def retry_count(self) -> int:
        return self.state.attempts - 1

    @property
    def is_of_object(self) -> bool:
        return self.id.startswith(OBJECT_PREFIX)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended, at `at_ms`. `error` is None unless it is to be retried or parked.

    `began_at_ms` is None where it took no time of its own: it was decided at that instant.
    """

    claim: Claim
    outcome: Outcome
    at_ms: int
    error: Exception | None = None
    began_at_ms: int | None = None

    @property
    def lateness_ms(self) -> int:
        """How late it began."""
        began_at_ms = self.at_ms if self.began_at_ms is None else self.began_at_ms
        return began_at_ms - self.claim.state.scheduled_time


@dataclass(slots=True)
class Claimed:
    """What one claim brought: alarms to work on, and what happened on the way."""

    claims: list[Claim] = field(default_factory=list)
    lapsed: int = 0  # claims, anybody's, that had outlived their lease
    parked: list[str] = field(default_factory=list)  # unreadable, or begun too often
    joined: list[Claim] = field(default_factory=list)  # of objects, that have company now
    waiting: bool = False  # suspects, for what is under way here to end (alarm_company.py)


class ClaimDueAlarms(Work):
    """Marks up to `limit` due alarms as ours for `lease_ms`. Returns a Claimed.

    A claim counts as an attempt begun, durably, and its lease is never shorter than the
    wait after a failure would be. So a handler which kills its process backs off and is
    parked in the end like any other; those that were only beside it are not counted
    (alarm_company.py). Rows that another process is claiming are passed over.
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
        claimed, due = Claimed(), []
        for alarm_id, _, job_state in unit.session.due_alarms(
            unit.now_ms, self._limit, self._scope
        ):
            state = _readable(alarm_id, job_state)
            if state is None or (is_counted(state) and state.attempts >= MAX_ATTEMPTS):
                unit.session.park_alarm(alarm_id, job_state)
                claimed.parked.append(alarm_id)
            else:
                due.append((alarm_id, state))
        chosen = choose(due, self._crowd)
        claimed.waiting = chosen.waiting
        self._claim(unit, claimed, chosen)
        self._join(unit, claimed, chosen)
        self.claims[:] = claimed.claims
        return claimed

    def _claim(self, unit: UnitOfWork, claimed: Claimed, chosen: Chosen) -> None:
        tokens: dict[int, str] = {}
        rows = []
        for (alarm_id, state), together in chosen.claims:
            token = tokens.setdefault(together, new_token(together))
            attempts = state.attempts + is_counted(state)
            ours = msgspec.structs.replace(state, attempts=attempts, token=token)
            encoded = alarm_state.encode(ours)
            claimed.lapsed += state.token is not None
            cut_off = 0 if state.token is None else together_at(state.token)
            claimed.claims.append(Claim(alarm_id, ours, encoded, cut_off))
            rows.append((alarm_id, self._lease_end(unit, attempts), encoded))
        if rows:
            unit.session.put_alarms(rows)

    def _join(self, unit: UnitOfWork, claimed: Claimed, chosen: Chosen) -> None:
        """Notes that those who were alone until now are not any more."""
        for claim in self._under_way:
            if claim.id in chosen.joined:
                state = msgspec.structs.replace(claim.state, token=new_token(2))
                joined = Claim(claim.id, state, alarm_state.encode(state), claim.cut_off)
                row = (claim.id, self._lease_end(unit, state.attempts), joined.job_state)
                if unit.session.replace_alarm(claim.job_state, row):
                    claimed.joined.append(joined)

    def _lease_end(self, unit: UnitOfWork, attempts: int) -> float:
        return (unit.now_ms + max(self._lease_ms, retry_delay_ms(attempts))) / 1000


class SettleAlarms(Work):
    """Runs the alarm of each claimed reservation, all in one transaction.

    Returns one Attempt per claim, in order. One that fails fails alone.
    """

    keeps_house = True

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.aggregate_ids = [claim.id for claim in claims]

    def run(self, unit: UnitOfWork) -> list[Attempt]:
        return [self._settle(unit, claim) for claim in self.claims]

    def _settle(self, unit: UnitOfWork, claim: Claim) -> Attempt:
        try:
            unit.append(claim.id, expire(unit.reservation(claim.id), unit.now_ms))
        except NotHeld:
            unit.after_flush(lambda: unit.session.remove_alarm(claim.id, claim.job_state))
            return Attempt(claim, "rejected", unit.now_ms)
        except NotDue as early:
            move_claim(unit, claim, early.expires_at_ms, attempts=0)
            return Attempt(claim, "rejected", unit.now_ms)
        except Exception as error:
            if unit.session.is_aborted or not is_of_one(error):
                raise  # there is no transaction any more to count it in
            return fail(unit, claim, error)
        return Attempt(claim, "ok", unit.now_ms)


class ReleaseAlarms(Work):
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
            at_ms = unit.now_ms + self._after_ms if self._after_ms else claim.state.scheduled_time
            waits = bool(self._after_ms)
            move_claim(unit, claim, at_ms, attempts=claim.state.attempts - 1, waits=waits)


class FailAlarm(Work):
    """Counts an attempt that could not be settled as failed. Returns the Attempt."""

    def __init__(self, claim: Claim, error: Exception) -> None:
        self._claim = claim
        self._error = error

    def run(self, unit: UnitOfWork) -> Attempt:
        return fail(unit, self._claim, self._error)


class FailAlarms(Work):
    """The same for many. Returns an Attempt for each."""

    keeps_house = True

    def __init__(self, failures: Sequence[tuple[Claim, Exception]]) -> None:
        self._failures = failures

    def run(self, unit: UnitOfWork) -> list[Attempt]:
        return [fail(unit, claim, error) for claim, error in self._failures]


class RedriveAlarm(Work):
    """Gives a parked alarm a fresh start. Returns whether there is one to run now.

    The log says what it is for; where the log cannot be read, the row does.
    """

    def __init__(self, alarm_id: str) -> None:
        self._alarm_id = alarm_id
        self.aggregate_ids = () if alarm_id.startswith(OBJECT_PREFIX) else (alarm_id,)

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
            fresh = alarm_row(alarm_id, readable.scheduled_time)
            unit.after_flush(lambda: unit.session.put_alarms([fresh]))
        return bool(readable)


def fail(unit: UnitOfWork, claim: Claim, error: Exception) -> Attempt:
    """The retry rule: later and later, then parked."""
    attempts = claim.state.attempts
    retry_at_ms = next_attempt_at_ms(attempts, unit.now_ms, random())
    move_claim(unit, claim, retry_at_ms, attempts=attempts)
    return Attempt(claim, "parked" if retry_at_ms is None else "retry", unit.now_ms, error)


def move_claim(
    unit: UnitOfWork, claim: Claim, at_ms: int | None, attempts: int, waits: bool = False
) -> None:
    """Ends a claim: look again at `at_ms`, or never (parked) if None."""
    state = msgspec.structs.replace(claim.state, attempts=attempts, token=None, waits=waits)
    free = alarm_state.encode(state)
    row = (claim.id, None if at_ms is None else at_ms / 1000, free)
    unit.after_flush(lambda: unit.session.replace_alarm(claim.job_state, row))


def _readable(alarm_id: str, job_state: bytes) -> AlarmState | None:
    try:
        return alarm_state.decode(job_state)
    except UnreadableAlarm as error:
        logger.error("the alarm of %s cannot be read and is parked: %s", alarm_id, error)
        return None
