"""What is answered of holds with terms and of items: bytes, for they may be kept."""

from http import HTTPStatus
from typing import Any

import msgspec

from reservation_expiry.domain.errors import HoldRefused
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.hold_commands import Answered, Outcome
from reservation_expiry.infrastructure.stores.row_types import ItemRow

_encode = msgspec.json.Encoder().encode

STATUS_OF_CODE = {
    "hold-not-found": HTTPStatus.NOT_FOUND,
    "not-yours": HTTPStatus.FORBIDDEN,
    "version-mismatch": HTTPStatus.PRECONDITION_FAILED,
    "beyond-until": HTTPStatus.UNPROCESSABLE_ENTITY,
    "would-shorten": HTTPStatus.UNPROCESSABLE_ENTITY,
    "idempotency-key-reused": HTTPStatus.UNPROCESSABLE_ENTITY,
}


def hold_fields(state: Reservation, now_ms: int) -> dict[str, Any]:
    """A hold for clients; never its secret, nor the hash of it."""
    terms = state.terms
    is_overdue = state.status == "held" and state.expires_at_ms <= now_ms
    metadata = (
        None if terms is None or terms.metadata is None else msgspec.Raw(terms.metadata.encode())
    )
    return {
        "hold": state.name,
        "status": "expired" if is_overdue else state.status,
        "version": state.version,
        "createdAt": state.created_at_ms,
        "expiresAt": state.expires_at_ms,
        "until": None if terms is None else terms.until_ms,
        "endedAt": state.expired_at_ms if state.ended_at_ms is None else state.ended_at_ms,
        "lines": [] if terms is None else [line._asdict() for line in terms.lines],
        "owner": None if terms is None else terms.owner,
        "metadata": metadata,
    }


def shown_hold(state: Reservation, now_ms: int) -> bytes:
    return _encode({**hold_fields(state, now_ms), "now": now_ms})


def shown_item(row: ItemRow, now_ms: int) -> dict[str, Any]:
    name, _, capacity, held, confirmed = row
    return {
        "item": name,
        "capacity": capacity,
        "held": held,
        "confirmed": confirmed,
        "free": max(0, capacity - held - confirmed),
        "now": now_ms,
    }


def render_hold(status: HTTPStatus, outcome: Outcome) -> Answered:
    """`status` is that of a hold that begins; what goes on or is repeated answers 200."""
    if outcome.refusal is not None:
        return refused(outcome.refusal, outcome)
    state = outcome.state
    if not isinstance(state, Reservation):
        raise TypeError(f"{state!r} is no hold")
    body = {**hold_fields(state, outcome.now_ms), "changed": outcome.changed, "now": outcome.now_ms}
    return Answered(HTTPStatus.OK if outcome.goes_on else status, state.version, _encode(body))


def render_item(outcome: Outcome) -> Answered:
    if outcome.refusal is not None:
        return refused(outcome.refusal, outcome)
    row = outcome.state
    if row is None or isinstance(row, Reservation):
        raise TypeError(f"{row!r} is no item")
    body = {**shown_item(row, outcome.now_ms), "changed": outcome.changed}
    return Answered(HTTPStatus.OK, None, _encode(body))


def refused(refusal: HoldRefused, outcome: Outcome) -> Answered:
    status = STATUS_OF_CODE.get(refusal.code, HTTPStatus.CONFLICT)
    sentence = str(refusal)
    body = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": f"{sentence}.",
        "code": refusal.code,
        **refusal.details,
        "now": outcome.now_ms,
    }
    hold, version = outcome.state, None
    if isinstance(hold, Reservation) and refusal.code not in ("not-yours", "hold-not-found"):
        body["hold"], version = hold_fields(hold, outcome.now_ms), hold.version
    return Answered(status, version, _encode(body))


def headers_of_hold(answered: Answered) -> list[tuple[bytes, bytes]]:
    kind = b"application/json" if answered.status < 400 else b"application/problem+json"
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(answered.body)).encode()),
    ]
    if answered.version is not None:
        headers.append((b"etag", f'"{answered.version}"'.encode()))
    return headers
