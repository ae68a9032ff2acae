"""What a client is told when something goes wrong: RFC 9457 problem documents.

One table gives each of our errors its status; a test checks that none is missing.
`code` is stable and meant for programs, `detail` is a sentence for people.
"""

import logging
import time
from http import HTTPStatus

import msgspec
from flask import Response

from reservation_expiry.api import access, gate, requests
from reservation_expiry.api.request_ids import request_id
from reservation_expiry.domain import errors as domain
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure import errors as store

RETRY_AFTER_SECONDS = 1
TOLD_SECONDS = 10.0  # at most so often the log is told of errors with one code

logger = logging.getLogger(__name__)
_told: dict[str, float] = {}  # when, by code

STATUS_OF: dict[type[ReservationExpiryError], HTTPStatus] = {
    domain.DomainError: HTTPStatus.CONFLICT,
    domain.InvalidReservationId: HTTPStatus.BAD_REQUEST,
    domain.InvalidTtl: HTTPStatus.BAD_REQUEST,
    domain.InvalidNow: HTTPStatus.BAD_REQUEST,
    domain.HoldRefused: HTTPStatus.CONFLICT,
    domain.NotHeld: HTTPStatus.CONFLICT,
    domain.NotDue: HTTPStatus.CONFLICT,
    domain.InvalidObjectName: HTTPStatus.BAD_REQUEST,
    domain.InvalidSchedule: HTTPStatus.BAD_REQUEST,
    domain.InvalidToken: HTTPStatus.BAD_REQUEST,
    requests.RequestRefused: HTTPStatus.BAD_REQUEST,
    requests.BadStream: HTTPStatus.BAD_REQUEST,
    requests.OtherLog: HTTPStatus.CONFLICT,
    requests.BadHost: HTTPStatus.BAD_REQUEST,
    access.ForeignHost: HTTPStatus.FORBIDDEN,
    access.ForeignOrigin: HTTPStatus.FORBIDDEN,
    gate.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    gate.SignInNeeded: HTTPStatus.SEE_OTHER,
    gate.ScopeNeeded: HTTPStatus.FORBIDDEN,
    requests.BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    requests.BodyTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    domain.PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    store.StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
    store.StoreBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    store.Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    store.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    store.OutcomeUnknown: HTTPStatus.SERVICE_UNAVAILABLE,
    store.StoreFull: HTTPStatus.INSUFFICIENT_STORAGE,
    store.LogDeleted: HTTPStatus.GONE,
    store.StoreStopped: HTTPStatus.SERVICE_UNAVAILABLE,
    store.ForkedProcess: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.StoreDamaged: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.RowRefused: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.EventRefused: HTTPStatus.CONFLICT,
    store.VersionConflict: HTTPStatus.CONFLICT,
    store.ObjectElsewhere: HTTPStatus.SERVICE_UNAVAILABLE,
    store.ObjectDropped: HTTPStatus.SERVICE_UNAVAILABLE,
    store.UndecodableEvent: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.UnknownTopic: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.DatabaseRefused: HTTPStatus.SERVICE_UNAVAILABLE,
    store.ImportRefused: HTTPStatus.SERVICE_UNAVAILABLE,
    store.InvalidAddress: HTTPStatus.SERVICE_UNAVAILABLE,
    store.ForeignDatabase: HTTPStatus.SERVICE_UNAVAILABLE,
    store.NewerSchema: HTTPStatus.SERVICE_UNAVAILABLE,
    store.DamagedLog: HTTPStatus.SERVICE_UNAVAILABLE,
    store.DatabaseNotWritable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def problem(status: HTTPStatus, code: str, detail: str, **members: object) -> Response:
    """A problem document; what the client may try again says when."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": code,
        **members,
    }
    of = request_id()
    if of is not None:
        body["requestId"] = of
    response = Response(
        msgspec.json.encode(body), status.value, content_type="application/problem+json"
    )
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def problem_of(error: ReservationExpiryError) -> Response:
    """The problem document for one of our errors: its public sentence, while the log has what
    the operator needs, addresses and the driver's words included."""
    _tell_the_log(error)
    if isinstance(error, store.LogDeleted):
        return Response(b'{"status":"deleted"}', 410, content_type="application/json")
    response = problem(STATUS_OF[type(error)], error.code, _sentence(error.public))
    if isinstance(error, requests.RequestRefused):
        response.headers.update(error.headers)
    return response


def _tell_the_log(error: ReservationExpiryError) -> None:
    now = time.monotonic()
    if error.public != str(error) and now - _told.get(error.code, -TOLD_SECONDS) >= TOLD_SECONDS:
        _told[error.code] = now
        logger.warning("requests are answered %s: %s", error.code, error)


def too_large() -> Response:
    """The problem document for a body over the limit."""
    return problem_of(requests.BodyTooLarge())


def unexpected(error: BaseException) -> Response:
    """The problem document for a fault of ours; the log has the rest."""
    logger.error("a request failed unexpectedly", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "Something unforeseen went wrong; the server's log says what.",
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
