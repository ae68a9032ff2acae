"""Holds with terms, and items, over HTTP.

The routes are a table (`hold_routes.py`), what they ask is made into commands by
`hold_requests.py`. Errors are problem documents. Every command is decided and answered in one
transaction, so requests with one Idempotency-Key never run side by side.
"""

from functools import partial
from http import HTTPStatus

from flask import Flask, Response, request

from reservation_expiry.api.bodies import json_response, read_body
from reservation_expiry.api.hold_answers import headers_of_hold, shown_hold, shown_item
from reservation_expiry.api.hold_pages import page_of_holds, replayed
from reservation_expiry.api.hold_requests import HoldCommands, HoldRequest, refuse_item_name
from reservation_expiry.api.hold_routes import ROUTES, InvalidBody, Route
from reservation_expiry.api.problems import problem
from reservation_expiry.api.read_routes import DEFAULT_LIMIT, MAX_INTEGER, MAX_LIMIT, integer
from reservation_expiry.domain.ids import aggregate_id
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.hold_commands import Answered
from reservation_expiry.infrastructure.units import DEFAULT_CAPACITY


def add_hold_routes(app: Flask, application: ReservationApplication, longest_seconds: int) -> None:
    views, commands = HoldViews(application), HoldCommands(longest_seconds)

    def act(route: Route, **names: str) -> Response:
        raw = read_body(request.environ)
        asked = HoldRequest(request.method, request.path, request.headers.get, raw)
        return _response(application.act(commands.command(route, asked, **names)))

    for route in ROUTES:
        view = getattr(views, route.view) if route.body is None else partial(act, route)
        app.add_url_rule(
            route.path,
            f"hold-{route.method}-{route.path}",
            view,
            methods=[route.method],
            provide_automatic_options=False,
        )
    app.register_error_handler(
        InvalidBody, lambda error: problem(HTTPStatus.BAD_REQUEST, "invalid-body", str(error))
    )


class HoldViews:
    """What is only read."""

    def __init__(self, application: ReservationApplication) -> None:
        self._application = application

    def show(self, name: str) -> Response:
        """As it is, or as it was; overdue shows as expired before its alarm has run."""
        hold_id, now_ms = aggregate_id(name), self._application.clock.now_ms()
        at_ms = integer("at", None, 0, MAX_INTEGER)
        version = integer("version", None, 1, MAX_INTEGER)
        if at_ms is not None and version is not None:
            raise InvalidBody("Give at or version, not both.")
        if at_ms is None and version is None:
            state = self._application.get(name)
        else:
            state = replayed(self._application, hold_id, at_ms, version)
            now_ms = now_ms if at_ms is None else at_ms
        if state is None or state.terms is None:
            return problem(HTTPStatus.NOT_FOUND, "hold-not-found", f"{name} is no hold with terms.")
        return _response(Answered(200, state.version, shown_hold(state, now_ms)))

    def page(self) -> Response:
        return json_response(page_of_holds(self._application))

    def show_item(self, name: str) -> Response:
        refuse_item_name(name)
        row = self._application.queries.item(name) or (name, 0, DEFAULT_CAPACITY, 0, 0)
        return json_response(shown_item(row, self._application.clock.now_ms()))

    def items(self) -> Response:
        """A page of items in order of their names; ask again with `after` = `next`."""
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        after, now_ms = request.args.get("after", ""), self._application.clock.now_ms()
        rows = self._application.queries.items(after, limit)
        found = [shown_item(row, now_ms) for row in rows]
        last = rows[-1][0] if len(rows) == limit else None
        return json_response({"items": found, "next": last, "now": now_ms})


def _response(answered: Answered) -> Response:
    headers = [(name.decode(), value.decode()) for name, value in headers_of_hold(answered)]
    return Response(answered.body, answered.status, headers)
