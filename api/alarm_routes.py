"""Alarms over HTTP: to look at them, and to give parked ones a fresh start."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from flask import Flask, Response, request

from reservation_expiry.api.bodies import json_response, read_body
from reservation_expiry.api.problems import problem
from reservation_expiry.api.read_routes import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    InvalidParameter,
    choice,
    integer,
    text,
)
from reservation_expiry.api.rendering import render_alarm, render_attempt
from reservation_expiry.domain.ids import id_of
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.sql.alarm_pages import (
    ALARM_STATES,
    OUTCOMES,
    AttemptsWanted,
)

_BOOLEANS = ("true", "false")


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    """What POST takes: the name of one, or `"all": true`."""

    name: str | None = None
    all: bool = False


_decode_body = msgspec.json.Decoder(RedriveBody).decode


def add_alarm_routes(app: Flask, application: ReservationApplication) -> None:
    views = AlarmViews(application)
    for path, method, view in (
        ("/alarms", "GET", views.alarms),
        ("/alarms/attempts", "GET", views.attempts),
        ("/alarms/redrive", "POST", views.redrive),
        ("/alarms/<path:name>/redrive", "POST", views.redrive_one),
    ):
        app.add_url_rule(path, view_func=view, methods=[method], provide_automatic_options=False)


class AlarmViews:
    def __init__(self, application: ReservationApplication) -> None:
        self._application = application

    def alarms(self) -> Response:
        """The earliest alarms, parked ones first; all, or those in one `state`."""
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        state = choice("state", ALARM_STATES)
        now_ms = self._application.clock.now_ms()
        rows = self._application.queries.alarms(state, now_ms=now_ms, limit=limit)
        return json_response({"alarms": [render_alarm(row, now_ms) for row in rows]})

    def attempts(self) -> Response:
        """The newest attempts at alarms, and the cursor of those before."""
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        found = self._application.queries.attempts(attempts_wanted(request.args), limit + 1)
        page = found[:limit]
        return json_response(
            {
                "attempts": [render_attempt(row) for row in page],
                "before": page[-1][0] if len(found) > limit else None,
            }
        )

    def redrive(self) -> Response:
        """Gives the parked alarm of a name, or all of them, a fresh start."""
        try:
            body = _decode_body(read_body(request.environ))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidParameter(f"The body names no alarm: {error}.") from error
        if (body.name is None) != body.all:
            raise InvalidParameter('The body must be {"name": "..."} or {"all": true}.')
        if body.name is None:
            return json_response({"redriven": self._application.redrive_all()})
        return self.redrive_one(body.name)

    def redrive_one(self, name: str) -> Response:
        """Gives the parked alarm of a reservation or an object a fresh start."""
        if not self._application.redrive(name):
            return problem(HTTPStatus.NOT_FOUND, "alarm-not-found", f"{name} has no alarm to run.")
        return json_response({"redriven": 1})


def attempts_wanted(given: Mapping[str, str]) -> AttemptsWanted:
    """Which attempts a query asks for. Raises InvalidParameter."""
    name, retry = given.get("name"), choice("retry", _BOOLEANS, given)
    return AttemptsWanted(
        outcome=choice("outcome", OUTCOMES, given),
        entrypoint=text("entrypoint", given),
        subject=None if name is None else id_of(name),
        is_retry=None if retry is None else retry == "true",
        before=text("before", given),
    )
