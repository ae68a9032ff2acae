"""What a client is told when something goes wrong: RFC 9457 problem documents.

One table gives each of our errors its status; a test checks that none is missing.
`code` is stable and meant for programs, `detail` is a sentence for people.
"""

import logging
from http import HTTPStatus

import msgspec
from flask import Response

from domain import errors as domain
from domain.errors import ReservationExpiryError
from infrastructure import errors as store
from infrastructure.settings import BODY_LIMIT_BYTES

RETRY_AFTER_SECONDS = 1

logger = logging.getLogger(__name__)

STATUS_OF: dict[type[ReservationExpiryError], HTTPStatus] = {
    domain.DomainError: HTTPStatus.CONFLICT,
    domain.InvalidReservationId: HTTPStatus.BAD_REQUEST,
    domain.InvalidTtl: HTTPStatus.BAD_REQUEST,
    domain.InvalidNow: HTTPStatus.BAD_REQUEST,
    domain.NotHeld: HTTPStatus.CONFLICT,
    domain.NotDue: HTTPStatus.CONFLICT,
    domain.InvalidObjectName: HTTPStatus.BAD_REQUEST,
    domain.InvalidSchedule: HTTPStatus.BAD_REQUEST,
    store.StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
    store.StoreBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    store.Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    store.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    store.OutcomeUnknown: HTTPStatus.SERVICE_UNAVAILABLE,
    store.StoreFull: HTTPStatus.INSUFFICIENT_STORAGE,
    store.StoreStopped: HTTPStatus.SERVICE_UNAVAILABLE,
    store.ForkedProcess: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.StoreDamaged: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.VersionConflict: HTTPStatus.CONFLICT,
    store.ObjectElsewhere: HTTPStatus.SERVICE_UNAVAILABLE,
    store.ObjectDropped: HTTPStatus.SERVICE_UNAVAILABLE,
    store.UndecodableEvent: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.UnknownTopic: HTTPStatus.INTERNAL_SERVER_ERROR,
    store.DatabaseRefused: HTTPStatus.SERVICE_UNAVAILABLE,
    store.InvalidAddress: HTTPStatus.SERVICE_UNAVAILABLE,
    store.ForeignDatabase: HTTPStatus.SERVICE_UNAVAILABLE,
    store.NewerSchema: HTTPStatus.SERVICE_UNAVAILABLE,
    store.DamagedLog: HTTPStatus.SERVICE_UNAVAILABLE,
    store.DatabaseNotWritable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def problem(status: HTTPStatus, code: str, detail: str, **members: object) -> Response:
    """A problem document; what the client may try again says when."""
    body = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": code,
        **members,
    }
    response = Response(
        msgspec.json.encode(body), status.value, content_type="application/problem+json"
    )
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def problem_of(error: ReservationExpiryError) -> Response:
    """The problem document for one of our errors."""
    return problem(STATUS_OF[type(error)], error.code, _sentence(str(error)))


def too_large() -> Response:
    """The problem document for a body over the limit."""
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return problem(status, "body-too-large", f"A body may have at most {BODY_LIMIT_BYTES} bytes.")


def unexpected(error: Exception) -> Response:
    """The problem document for a fault of ours; the log has the rest."""
    logger.error("a request failed unexpectedly", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "Something unforeseen went wrong; the server's log says what.",
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
