"""The statements of pages of alarms, and of the attempts at them that are kept."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from reservation_expiry.domain.alarm import Outcome
from reservation_expiry.domain.durable_object import RunOutcome
from reservation_expiry.domain.ids import ID_PREFIX, objects_of
from reservation_expiry.infrastructure.stores.sql.prefixes import begins_with
from reservation_expiry.infrastructure.stores.sql.tables import ATTEMPTS

AlarmState = Literal["due", "waiting", "claimed", "parked"]
ALARM_STATES: tuple[AlarmState, ...] = get_args(AlarmState)
# How an attempt at an alarm may end, or a run of a schedule's event.
OUTCOMES = tuple(dict.fromkeys((*get_args(Outcome), *get_args(RunOutcome))))
RESERVATION = "Reservation"  # the entrypoint of a reservation's alarm
# A claim is looked at again when its lease ends; none is longer, and so no other row is read.
LONGEST_LEASE_SECONDS = 3_600
_TOKEN = b'"token":'  # in the state of an alarm that is claimed


@dataclass(frozen=True)
class AttemptsWanted:
    """What the page is of, the newest first. `before` is the id of the last one seen."""

    outcome: str | None = None
    entrypoint: str | None = None
    subject: str | None = None
    is_retry: bool | None = None
    before: str | None = None


def alarms_where(state: AlarmState | None, now_ms: int) -> tuple[str, list[Any]]:
    """The alarms in one state, or all. One whose lease has ended is due."""
    now = now_ms / 1000
    if state is None:
        return "", []
    if state == "parked":
        return " WHERE next_run_time IS NULL", []
    if state == "due":
        return " WHERE next_run_time <= ?", [now]
    if state == "waiting":
        return " WHERE next_run_time > ? AND instr(job_state, ?) = 0", [now, _TOKEN]
    within = " WHERE next_run_time > ? AND next_run_time <= ? AND instr(job_state, ?) > 0"
    return within, [now, now + LONGEST_LEASE_SECONDS, _TOKEN]


def attempts_statement(wanted: AttemptsWanted, limit: int) -> tuple[str, list[Any]]:
    """Without an index but that of ids: as many are kept as can be looked through."""
    wheres, values = ["1 = 1"], []
    for column, value in (("outcome", wanted.outcome), ("subject", wanted.subject)):
        if value is not None:
            wheres.append(f"{column} = ?")
            values.append(value)
    if wanted.before is not None:
        wheres.append("id < ?")
        values.append(wanted.before)
    if wanted.is_retry is not None:
        wheres.append("retry_count > 0" if wanted.is_retry else "retry_count = 0")
    if wanted.entrypoint is not None:
        is_plain = wanted.entrypoint == RESERVATION
        prefix = ID_PREFIX if is_plain else objects_of(wanted.entrypoint)
        begins, bounds = begins_with("subject", prefix)
        wheres.append(begins)
        values += bounds
    select = f"SELECT {ATTEMPTS.selected} FROM attempts WHERE {' AND '.join(wheres)}"
    return f"{select} ORDER BY id DESC LIMIT ?", [*values, limit]
