"""Alarms over HTTP: to look at them, and to give parked ones a fresh start."""

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
)
from reservation_expiry.api.rendering import render_alarm
from reservation_expiry.infrastructure.application import ReservationApplication

WHICH = ("due", "parked")


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    """What POST takes: the name of one, or `"all": true`."""

    name: str | None = None
    all: bool = False


_decode_body = msgspec.json.Decoder(RedriveBody).decode


def add_alarm_routes(app: Flask, application: ReservationApplication) -> None:
    views = AlarmViews(application)
    for path, method, view in (
        ("/alarms", "GET", views.alarms),
        ("/alarms/redrive", "POST", views.redrive),
    ):
        app.add_url_rule(path, view_func=view, methods=[method], provide_automatic_options=False)


class AlarmViews:
    def __init__(self, application: ReservationApplication) -> None:
        self._application = application

    def alarms(self) -> Response:
        """The earliest alarms, parked ones first; all, or `only` those due or parked."""
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        only = choice("only", WHICH)
        now_ms = self._application.clock.now_ms()
        rows = self._application.queries.alarms(
            due_at_ms=now_ms if only == "due" else None, parked=only == "parked", limit=limit
        )
        return json_response({"alarms": [render_alarm(row, now_ms) for row in rows]})

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
        if not self._application.redrive(body.name):
            return problem(
                HTTPStatus.NOT_FOUND, "alarm-not-found", f"{body.name} has no alarm to run."
            )
        return json_response({"redriven": 1})
