"""GET /openapi.json: every route of the service, as OpenAPI 3.1 has it.

The family of holds is described by the table that routes and validates it (`holds.py`); what
the other routes take and answer stands here, and a test holds all of it against the routes
that there are.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Literal

import msgspec
from flask import Flask, Response

from reservation_expiry.api.hold_routes import ROUTES, Route
from reservation_expiry.api.schedules import EventBody
from reservation_expiry.domain.ids import NAME_PATTERN
from reservation_expiry.domain.reservation import MAX_NOW_MS, MAX_TTL_SECONDS, MIN_TTL_SECONDS

JSON, PROBLEM = "application/json", "application/problem+json"


class HeldLine(msgspec.Struct):
    item: str
    units: int


class Hold(msgspec.Struct):
    """A hold with terms. Times are Unix milliseconds by the service's clock, `now` included."""

    hold: str
    status: Literal["held", "confirmed", "released", "cancelled", "expired"]
    version: int
    createdAt: int
    expiresAt: int
    until: int
    endedAt: int | None
    lines: list[HeldLine]
    owner: str | None
    metadata: dict[str, Any] | None
    now: int
    changed: bool | None = None


class Item(msgspec.Struct):
    item: str
    capacity: int
    held: int
    confirmed: int
    free: int
    now: int
    changed: bool | None = None


class Short(msgspec.Struct):
    item: str
    wanted: int
    free: int


class Problem(msgspec.Struct):
    """RFC 9457. `code` is for programs, `hold` the hold as it is, `items` what is short."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hold: dict[str, Any] | None = None
    items: list[Short] | None = None


class Reservation(msgspec.Struct):
    """A reservation as the recorded contract shows it."""

    reservationId: str
    status: Literal["missing", "held", "expired"]
    createdAt: int | None
    expiresAt: int | None
    expiredAt: int | None
    expirationCount: int
    alarmAt: int | None


class Refusal(msgspec.Struct):
    """What the recorded contract answers where it refuses."""

    error: str


class HoldFor(msgspec.Struct):
    ttlSeconds: Annotated[int, msgspec.Meta(ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)]


class ReplayAt(msgspec.Struct):
    now: Annotated[int, msgspec.Meta(ge=1, le=MAX_NOW_MS)]


@dataclass(frozen=True)
class Other:
    """A route beside the family of holds. `query` are the names of its parameters."""

    method: str
    path: str
    summary: str
    query: tuple[str, ...] = ()
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    answers: tuple[int, ...] = (200,)
    kind: str | None = None  # of what it answers, if that is not JSON


_PAGE = ("limit", "after")
OTHERS: Sequence[Other] = (
    Other("GET", "/", "The service's name"),
    Other("GET", "/healthz", "Whether this process lives"),
    Other("GET", "/readyz", "Whether it does its job", answers=(200, 503)),
    Other("GET", "/metrics", "What all processes did, for Prometheus", kind="text/plain"),
    Other("GET", "/whoami", "Whose token that is, and of which namespace"),
    Other("GET", "/openapi.json", "This document"),
    Other("GET", "/events", "The log, in order", (*_PAGE, "last", "log"), answers=(200, 409)),
    Other("GET", "/reservations", "By name", ("status", "prefix", "dueBefore", *_PAGE)),
    Other("GET", "/reservations/<name>", "A reservation", answer=Reservation),
    Other(
        "POST",
        "/reservations/<name>",
        "Hold it from now, whatever state it is in",
        body=HoldFor,
        answer=Reservation,
        answers=(201, 409),
    ),
    Other("GET", "/reservations/<name>/events", "Its history", ("limit", "after")),
    Other(
        "POST",
        "/reservations/<name>/replay-alarm",
        "Take its alarm's path by a clock of one's own",
        body=ReplayAt,
        answer=Reservation,
    ),
    Other("GET", "/alarms", "Alarms, the next first", ("state", "limit")),
    Other(
        "GET",
        "/alarms/attempts",
        "How attempts at alarms ended, the newest first",
        ("outcome", "entrypoint", "name", "retry", "before", "limit"),
    ),
    Other(
        "POST",
        "/alarms/<path:name>/redrive",
        "Give a parked alarm a fresh start: seat-12, or an object's Counter/foo",
        answers=(200, 404),
    ),
    Other("POST", "/alarms/redrive", "Give parked alarms a fresh start", answers=(200, 404)),
    Other("GET", "/schedules/<name>", "Its events, by id", ("parked", *_PAGE)),
    Other("GET", "/schedules/<name>/events/<id>", "One of them", answers=(200, 304, 404, 412)),
    Other(
        "PUT",
        "/schedules/<name>/events/<id>",
        "Add or replace it",
        body=EventBody,
        answers=(200, 201, 412),
    ),
    Other("DELETE", "/schedules/<name>/events/<id>", "Cancel it", answers=(204, 404, 412)),
    Other(
        "POST",
        "/schedules/<name>/events/<id>/redrive",
        "Give a parked one a fresh start",
        answers=(200, 404, 409, 412),
    ),
)
EXAMPLE = {
    "ttlSeconds": 600,
    "lines": [{"item": "hall:A-12"}, {"item": "hall:floor", "units": 2}],
    "owner": "user-77",
    "metadata": {"order": "4711"},
}
_SUMMARIES = {  # of the views of holds
    "page": "Holds with terms, a page of them",
    "put_unnamed": "Take a hold, and have it named",
    "put": "Take a hold, or replace one's own by other terms",
    "show": "A hold, as it is or as it was",
    "extend": "Give it another deadline",
    "confirm": "Keep what it holds",
    "release": "Give back what it holds",
    "cancel": "Give back what was confirmed",
    "set_item": "Say how many units of an item there are",
    "show_item": "An item, and how many of its units are free",
    "items": "Items, by name",
}
_HEADERS = {
    "Hold-Token": "What only the holder knows: 16 to 200 visible ASCII characters.",
    "Idempotency-Key": "The same key and request have the same answer for a day.",
    "If-Match": "The version that the hold must be at, as in its ETag.",
}


def add_openapi_route(app: Flask) -> None:
    @app.get("/openapi.json", provide_automatic_options=False)
    def openapi() -> Response:
        return Response(document(), content_type=JSON)


@cache
def document() -> bytes:
    """Made once, from the tables."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(_braced(route.path), {})[route.method.lower()] = _of_holds(route)
    for other in OTHERS:
        paths.setdefault(_braced(other.path), {})[other.method.lower()] = _of_others(other)
    schemas = {**_components(), "Name": {"type": "string", "pattern": f"^{NAME_PATTERN}$"}}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "reservation-expiry",
                "version": version("reservation-expiry"),
                "description": "Holds that end by themselves, on time and exactly once.",
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "security": [{}, {"token": []}],
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _structs() -> list[type[msgspec.Struct]]:
    bodies = [route.body for route in ROUTES if route.body is not None]
    bodies += [other.body for other in OTHERS if other.body is not None]
    return list(dict.fromkeys([*bodies, Hold, Item, Problem, Reservation, Refusal]))


def _components() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        _structs(), ref_template="#/components/schemas/{name}"
    )
    return schemas


def _of_holds(route: Route) -> dict[str, Any]:
    is_page = route.path.count("/") == 1 and route.method == "GET"
    shown: Mapping[str, Any] = (
        {"type": "object"} if is_page else _ref(Item if "items" in route.path else Hold)
    )
    answers = {str(s): _answer(s, shown if s < 300 else _ref(Problem)) for s in route.answers}
    answers["400"] = _answer(400, _ref(Problem))
    headers = [
        {"name": name, "in": "header", "schema": {"type": "string"}, "description": text}
        for name, text in _HEADERS.items()
        if name in route.needs
    ]
    found = _operation(_SUMMARIES[route.view], route.path, route.query, route.body, answers)
    found["parameters"] += headers
    if route.view == "put":
        found["requestBody"]["content"][JSON]["example"] = EXAMPLE
    return found


def _of_others(other: Other) -> dict[str, Any]:
    shown = {"type": "object"} if other.answer is None else _ref(other.answer)
    answers = {str(s): _answer(s, shown if s < 300 else _ref(Problem)) for s in other.answers}
    if other.kind is not None:
        answers["200"] = _answer(200, {"type": "string"}, other.kind)
    if other.answer is Reservation:
        answers["400"] = _answer(400, _ref(Refusal), JSON)
    elif other.query:
        answers["400"] = _answer(400, _ref(Problem))
    return _operation(other.summary, other.path, other.query, other.body, answers)


def _operation(
    summary: str,
    path: str,
    query: Sequence[str],
    body: type[msgspec.Struct] | None,
    answers: Mapping[str, Any],
) -> dict[str, Any]:
    names = re.findall(r"<(?:\w+:)?(\w+)>", path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    parameters += [{"name": name, "in": "query", "schema": {"type": "string"}} for name in query]
    found: dict[str, Any] = {"summary": summary, "parameters": parameters, "responses": answers}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": _ref(body)}}}
    return found


def _answer(status: int, schema: Mapping[str, Any], kind: str | None = None) -> dict[str, Any]:
    description = HTTPStatus(status).phrase
    if status in (204, 304):
        return {"description": description}
    kind = kind or (JSON if status < 400 else PROBLEM)
    return {"description": description, "content": {kind: {"schema": schema}}}


def _ref(struct: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _braced(path: str) -> str:
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path)
