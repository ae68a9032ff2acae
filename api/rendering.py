"""How states and events are shown, over HTTP and on the command line alike."""

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import msgspec

from reservation_expiry.domain.durable_object import StorageWritten
from reservation_expiry.domain.events import Held
from reservation_expiry.domain.ids import aggregate_id, named, parse_object_id, reservation_name
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.domain.terms import Terms
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.errors import UndecodableEvent
from reservation_expiry.infrastructure.event_mapper import EVENT_TYPES, EventMapper, author_of
from reservation_expiry.infrastructure.instants import ms_of_seconds
from reservation_expiry.infrastructure.stores.row_types import AlarmRow, AttemptFacts, AttemptRow
from reservation_expiry.infrastructure.stores.sql.alarm_pages import RESERVATION
from reservation_expiry.infrastructure.stores.sql.queries import RecordedEvent

_EVENT_CLASSES = {t.topic.rpartition(".")[2]: t.event_class for t in EVENT_TYPES}


def render(name: str, state: Reservation | None) -> dict[str, object]:
    """A reservation as the contract shows it; one that was never held is `missing`."""
    if state is None:
        return {"reservationId": name, "status": "missing", "alarmAt": None}
    return {
        "reservationId": name,
        "status": state.status,
        "createdAt": state.created_at_ms,
        "expiresAt": state.expires_at_ms,
        "expiredAt": state.expired_at_ms,
        "expirationCount": state.expiration_count,
        "alarmAt": state.alarm_at_ms,
    }


def render_event(row: RecordedEvent, mapper: EventMapper) -> dict[str, object]:
    """An event for clients; one that cannot be decoded says so in `problem`."""
    shown: dict[str, object] = {
        "position": row.position,
        "version": row.originator_version,
        "event": row.topic.rpartition(".")[2],
        "recordedAt": row.recorded_at_ms,
    }
    try:
        event = mapper.decode(row.originator_id, row.originator_version, row.topic, row.state)
    except UndecodableEvent as error:
        return {**shown, "data": None, "problem": str(error)}
    names = _own_fields(type(event))  # type: ignore[arg-type]  # mypy asks instances for the hash
    data = {_camel(name): getattr(event, name) for name in names}
    if type(event) is Held:
        data = _without_secret(data)
    if type(event) is StorageWritten:  # megabytes, perhaps, that are JSON already
        data["puts"] = {key: msgspec.Raw(value) for key, value in event.puts.items()}
    by = author_of(row.state)
    return {**shown, "data": data} if by is None else {**shown, "by": by, "data": data}


def reservation_event(name: str, shown: Mapping[str, Any]) -> Any:
    """The event of a reservation that `render_event` has shown. Raises UndecodableEvent."""
    event_class = _EVENT_CLASSES.get(str(shown.get("event")))
    data = shown.get("data")
    try:
        if event_class is None or not isinstance(data, dict):
            raise KeyError(shown.get("problem") or f"no event is called {shown.get('event')!r}")
        if event_class is Held:  # its terms are not told in full, and nothing here needs them
            data = {**data, "terms": None}
        values = {field: data[_camel(field)] for field in _own_fields(event_class)}
        return event_class(aggregate_id(name), shown["version"], **values)
    except KeyError as error:
        raise UndecodableEvent(f"{name}: an event cannot be read: {error}") from error


def render_alarm(row: AlarmRow, now_ms: int) -> dict[str, Any]:
    """An alarm, and what it waits for."""
    alarm_id, next_run_time, job_state = row
    next_ms = None
    if next_run_time is not None and math.isfinite(next_run_time):
        next_ms = ms_of_seconds(next_run_time)
    try:
        state = alarm_row.decode(job_state)
    except alarm_row.UnreadableAlarm:
        state = None
    if next_ms is None:
        word = "parked" if next_run_time is None else "damaged"
    elif next_ms <= now_ms:
        word = "due"
    else:
        word = "waiting" if state is None or state.token is None else "claimed"
    return {
        **named(alarm_id),
        "scheduledTime": None if state is None else state.scheduled_time,
        "nextRunTime": next_ms,
        "attempts": None if state is None else state.attempts,
        "state": word if state is not None else f"{word}, unreadable",
    }


def render_attempt(row: AttemptRow) -> dict[str, Any]:
    """An attempt at an alarm, or at a schedule's event, that is kept."""
    attempt = AttemptFacts._make(row[1:])
    identity = parse_object_id(attempt.subject)
    return {
        "at": attempt.at_ms,
        "eventType": "alarm",
        "entrypoint": RESERVATION if identity is None else identity.class_name,
        "name": reservation_name(attempt.subject) if identity is None else identity.name,
        "eventId": attempt.event_id,
        "scheduledTime": attempt.scheduled_ms,
        "outcome": attempt.outcome,
        "isRetry": attempt.retry_count > 0,
        "retryCount": attempt.retry_count,
        "latenessMs": attempt.lateness_ms,
        "durationMs": attempt.duration_ms,
        "error": attempt.error,
    }


def _without_secret(data: dict[str, object]) -> dict[str, object]:
    """The hash of a token is nobody's business; terms are shown only where there are any."""
    terms = data.pop("terms")
    if not isinstance(terms, Terms):
        return data
    shown = {
        "until": terms.until_ms,
        "lines": [line._asdict() for line in terms.lines],
        "owner": terms.owner,
        "metadata": None if terms.metadata is None else msgspec.Raw(terms.metadata.encode()),
    }
    return {**data, "terms": shown}


@cache
def _own_fields(event_class: type) -> tuple[str, ...]:
    names = (field.name for field in fields(event_class))
    return tuple(name for name in names if not name.startswith("originator_"))


def _camel(key: str) -> str:
    """created_at_ms -> createdAt"""
    first, *rest = key.removesuffix("_ms").split("_")
    return first + "".join(word.capitalize() for word in rest)
