"""The recorded contract: the service document and the two routes of the original.

What each request answers was recorded from the real runtime (tests/contract/), and is
kept byte for byte, the order of the checks included: path and id (400), then for POST
the body (400), its field (400), then the method (405).

What a body has to say is read by `ttl_of` and `now_of`, for Flask's routes here and for the
event loop in front of them (`front.py`) alike.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import ClientDisconnected
from werkzeug.routing import BaseConverter, Rule

from reservation_expiry.api.bodies import read_body
from reservation_expiry.api.js_json import MAX_SAFE_INTEGER, NotJson, integer_at
from reservation_expiry.api.rendering import render
from reservation_expiry.domain.alarm import looks_like_seconds
from reservation_expiry.domain.ids import NAME_PATTERN
from reservation_expiry.domain.reservation import MAX_TTL_SECONDS, MIN_TTL_SECONDS, Reservation
from reservation_expiry.infrastructure.application import ReservationApplication

SERVICE = {"service": "reservation-expiry"}
BAD_ID = "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."
BAD_BODY = "Send a JSON request body."
BAD_TTL = f"ttlSeconds must be an integer from {MIN_TTL_SECONDS} through {MAX_TTL_SECONDS}."
BAD_NOW = "now must be a positive integer timestamp."
BAD_METHOD = "Method not allowed."


Answer = tuple[int, bytes]
"""(status, compact JSON)"""

_encode = msgspec.json.Encoder().encode
logger = logging.getLogger(__name__)


class BadRequest(Exception):
    """The contract's 400, with its sentence."""


class Contract:
    """Answers each route for any method. `environ` is WSGI's.

    Raises StoreError if the database does not answer, and RequestEntityTooLarge.
    """

    def __init__(self, application: ReservationApplication) -> None:
        self._application = application

    def service(self, environ: dict[str, Any]) -> Answer:
        return 200, _encode(SERVICE)

    def reservation(self, environ: dict[str, Any], name: str) -> Answer:
        method = environ["REQUEST_METHOD"]
        if method == "GET":
            return shown(name, self._application.get(name))
        if method != "POST":
            return refusal(405, BAD_METHOD)
        try:
            ttl_seconds = ttl_of(_body(environ))
        except BadRequest as error:
            return refusal(400, str(error))
        return held(name, self._application.hold(name, ttl_seconds))

    def replay(self, environ: dict[str, Any], name: str) -> Answer:
        if environ["REQUEST_METHOD"] != "POST":
            return refusal(405, BAD_METHOD)
        try:
            now_ms = now_of(_body(environ), name)
        except BadRequest as error:
            return refusal(400, str(error))
        return replayed(name, *self._application.expire(name, now_ms))


class NameConverter(BaseConverter):
    """Matches reservation ids in a path, and nothing else."""

    regex = NAME_PATTERN


def add_contract_routes(app: Flask, contract: Contract, *, replay_route: bool) -> None:
    """Adds the routes, for any method. What no route matches is the contract's bad id."""
    app.url_map.converters["name"] = NameConverter
    _route(app, "/", "service", contract.service)
    _route(app, "/reservations/<name:name>", "reservation", contract.reservation)
    if replay_route:
        _route(app, "/reservations/<name:name>/replay-alarm", "replay", contract.replay)
    app.register_error_handler(404, lambda _: _response(refusal(400, BAD_ID)))


def shown(name: str, state: Reservation | None) -> Answer:
    return 200, _encode(render(name, state))


def held(name: str, state: Reservation) -> Answer:
    return 201, _encode(render(name, state))


def replayed(name: str, state: Reservation | None, changed: bool) -> Answer:
    return 200, _encode({**render(name, state), "changed": changed})


def refusal(status: int, sentence: str) -> Answer:
    return status, _encode({"error": sentence})


def ttl_of(body: bytes) -> int:
    """The seconds that a hold is asked for. Raises BadRequest."""
    return _field(body, "ttlSeconds", MIN_TTL_SECONDS, MAX_TTL_SECONDS, BAD_TTL)


def now_of(body: bytes, name: str) -> int:
    """The clock that a replay is given, in Unix milliseconds. Raises BadRequest."""
    now_ms = _field(body, "now", 1, MAX_SAFE_INTEGER, BAD_NOW)
    if looks_like_seconds(now_ms):
        logger.warning("%s is replayed at now = %s ms: were seconds meant?", name, now_ms)
    return now_ms


def _field(body: bytes, key: str, low: int, high: int, sentence: str) -> int:
    try:
        value = integer_at(key, body)
    except NotJson:
        raise BadRequest(BAD_BODY) from None
    if value is None or not low <= value <= high:
        raise BadRequest(sentence)
    return value


def _body(environ: dict[str, Any]) -> bytes:
    try:
        return read_body(environ)
    except ClientDisconnected:
        raise BadRequest(BAD_BODY) from None


def _response(answer: Answer) -> Response:
    status, body = answer
    return Response(body, status, content_type="application/json")


def _route(app: Flask, path: str, endpoint: str, answer: Callable[..., Answer]) -> None:
    app.url_map.add(Rule(path, endpoint=endpoint))  # no methods: any
    app.view_functions[endpoint] = lambda **names: _response(answer(request.environ, **names))
