"""The recorded contract: the service document and the two routes of the original.

What each request answers was recorded from the real runtime (tests/contract/), and is
kept byte for byte, the order of the checks included: path and id (400), then for POST
the body (400), its field (400), then the method (405).
"""

from collections.abc import Callable

from flask import Flask, Response, request
from werkzeug.routing import BaseConverter, Rule

from api.bodies import json_response, read_body
from api.js_json import MAX_SAFE_INTEGER, NotJson, as_integer, is_truthy, parse
from domain.reservation import MAX_TTL_SECONDS, MIN_TTL_SECONDS, Reservation
from infrastructure.application import ReservationApplication

SERVICE = {"service": "reservation-expiry"}
BAD_ID = "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."
BAD_BODY = "Send a JSON request body."
BAD_TTL = f"ttlSeconds must be an integer from {MIN_TTL_SECONDS} through {MAX_TTL_SECONDS}."
BAD_NOW = "now must be a positive integer timestamp."
BAD_METHOD = "Method not allowed."


class NameConverter(BaseConverter):
    """Matches reservation ids in a path, and nothing else."""

    regex = "[a-z0-9][a-z0-9-]{1,38}[a-z0-9]"


class BadRequest(Exception):
    """The contract's 400, with its sentence."""


def add_contract_routes(
    app: Flask, application: ReservationApplication, *, replay_route: bool
) -> None:
    """Adds the routes, for any method: the views answer the wrong ones themselves."""
    views = ContractViews(application)
    app.url_map.converters["name"] = NameConverter
    _route(app, "/", "service", lambda: json_response(SERVICE))
    _route(app, "/reservations/<name:name>", "reservation", views.reservation)
    if replay_route:
        _route(app, "/reservations/<name:name>/replay-alarm", "replay", views.replay)
    app.register_error_handler(404, lambda _: _refusal(BAD_ID, 400))
    app.register_error_handler(BadRequest, lambda error: _refusal(str(error), 400))


class ContractViews:
    def __init__(self, application: ReservationApplication) -> None:
        self._application = application

    def reservation(self, name: str) -> Response:
        method = request.environ["REQUEST_METHOD"]
        if method == "GET":
            return json_response(render(name, self._application.get(name)))
        if method == "POST":
            ttl_seconds = _field("ttlSeconds", MIN_TTL_SECONDS, MAX_TTL_SECONDS, BAD_TTL)
            return json_response(render(name, self._application.hold(name, ttl_seconds)), 201)
        return _refusal(BAD_METHOD, 405)

    def replay(self, name: str) -> Response:
        if request.environ["REQUEST_METHOD"] != "POST":
            return _refusal(BAD_METHOD, 405)
        now_ms = _field("now", 1, MAX_SAFE_INTEGER, BAD_NOW)
        state, changed = self._application.expire(name, now_ms)
        return json_response({**render(name, state), "changed": changed})


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


def _field(key: str, low: int, high: int, sentence: str) -> int:
    """The integer at `key` of the request's body. Raises BadRequest."""
    try:
        body = parse(read_body(request.environ))
    except NotJson:
        raise BadRequest(BAD_BODY) from None
    if not is_truthy(body):
        raise BadRequest(BAD_BODY)
    value = as_integer(body.get(key)) if isinstance(body, dict) else None
    if value is None or not low <= value <= high:
        raise BadRequest(sentence)
    return value


def _refusal(sentence: str, status: int) -> Response:
    return json_response({"error": sentence}, status)


def _route(app: Flask, path: str, endpoint: str, view: Callable[..., Response]) -> None:
    app.url_map.add(Rule(path, endpoint=endpoint))  # no methods: any
    app.view_functions[endpoint] = view
