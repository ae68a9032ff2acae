"""Schedules over HTTP: events that run once, again and again, or by a cron expression.

A schedule is an `EventSchedule` object of its name; that an event has run is to be seen
in the log (`GET /events`). Errors are problem documents.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from flask import Flask, Response, request

from api.bodies import json_response, read_body
from api.problems import problem
from api.questions import DEFAULT_LIMIT, MAX_LIMIT, InvalidParameter, integer
from domain.durable_object import object_id
from domain.schedule import check_name
from infrastructure.application import ReservationApplication
from infrastructure.objects.event_schedule import EventSchedule
from infrastructure.objects.host_thread import HostThread

CLASS_NAME = EventSchedule.__name__


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """What PUT takes: `runAt`, with `repeatMs` or without; or `cron`, in `zone`."""

    runAt: Any = None
    repeatMs: Any = None
    payload: Any = None
    cron: Any = None
    zone: Any = "UTC"


_decode_body = msgspec.json.Decoder(EventBody).decode


class Schedules(HostThread):
    """The schedules of a process, by name."""

    def __init__(self, application: ReservationApplication) -> None:
        super().__init__(application, {CLASS_NAME: EventSchedule})

    def ask(self, name: str, method: str, *args: Any, **kwargs: Any) -> Any:
        check_name(name, "a schedule's name")
        return self.call(object_id(CLASS_NAME, name), method, *args, **kwargs)


def add_schedule_routes(app: Flask, schedules: Schedules) -> None:
    views = ScheduleViews(schedules)
    event = "/schedules/<name>/events/<id>"
    for path, method, view in (
        ("/schedules/<name>", "GET", views.list_events),
        (event, "PUT", views.put),
        (event, "GET", views.show),
        (event, "DELETE", views.cancel),
        (f"{event}/redrive", "POST", views.redrive),
    ):
        app.add_url_rule(
            path,
            f"schedule-{method}-{path}",
            view,
            methods=[method],
            provide_automatic_options=False,
        )


class ScheduleViews:
    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    def put(self, name: str, id: str) -> Response:
        """Adds the event, or replaces it: 201 or 200."""
        try:
            body = _decode_body(read_body(request.environ))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidParameter(f"The body is not an event: {error}.") from error
        found = self._schedules.ask(
            name, "putEvent", id, body.runAt, body.repeatMs, body.payload, body.cron, body.zone
        )
        return _tagged(found["event"], 201 if found["created"] else 200)

    def show(self, name: str, id: str) -> Response:
        event = self._schedules.ask(name, "getEvent", id)
        return _no_such_event(name, id) if event is None else _tagged(event, 200)

    def cancel(self, name: str, id: str) -> Response:
        if not self._schedules.ask(name, "cancelEvent", id):
            return _no_such_event(name, id)
        return Response(status=204)

    def redrive(self, name: str, id: str) -> Response:
        """Gives a parked event a fresh start."""
        if self._schedules.ask(name, "redriveEvent", id):
            return self.show(name, id)
        if self._schedules.ask(name, "getEvent", id) is None:
            return _no_such_event(name, id)
        return problem(HTTPStatus.CONFLICT, "not-parked", f"{id} is not parked.")

    def list_events(self, name: str) -> Response:
        """A page of events in order of their ids; `parked=true`: of those given up."""
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        after, parked = request.args.get("after", ""), request.args.get("parked", "false")
        if parked not in ("true", "false"):
            raise InvalidParameter("parked must be true or false.")
        method = "listParked" if parked == "true" else "listEvents"
        found = self._schedules.ask(name, method, limit, after)
        last = found[-1]["id"] if len(found) == limit else None
        return json_response({"name": name, "events": found, "next": last})


def _tagged(event: dict[str, Any], status: int) -> Response:
    response = json_response(event, status)
    response.add_etag()
    return response.make_conditional(request) if request.method == "GET" else response


def _no_such_event(name: str, id: str) -> Response:
    return problem(HTTPStatus.NOT_FOUND, "event-not-found", f"{name} has no event {id}.")
