"""Schedules over HTTP: events that run once, again and again, or by a cron expression.

A schedule is an `EventSchedule` object of its name; that an event has run is to be seen
in the log (`GET /events`). Errors are problem documents.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
from flask import Flask, Response, request

from reservation_expiry.api.bodies import json_response, read_body
from reservation_expiry.api.preconditions import not_modified, preconditions, tagged
from reservation_expiry.api.problems import problem
from reservation_expiry.api.read_routes import DEFAULT_LIMIT, MAX_LIMIT, InvalidParameter, integer
from reservation_expiry.domain.errors import InvalidSchedule, PreconditionFailed
from reservation_expiry.domain.ids import object_id
from reservation_expiry.domain.schedule import check_name
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from reservation_expiry.infrastructure.objects.host_on_demand import HostOnDemand
from reservation_expiry.infrastructure.objects.schedule_records import entity_tag

CLASS_NAME = EventSchedule.__name__
CLASSES = {CLASS_NAME: EventSchedule}  # what an object host must have for them


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """What PUT takes: `runAt`, with `repeatMs` or without; or `cron`, in `zone`."""

    runAt: Any = None
    repeatMs: Any = None
    payload: Any = None
    cron: Any = None
    zone: Any = "UTC"


_decode_body = msgspec.json.Decoder(EventBody).decode


def schedule_host(application: ReservationApplication) -> HostOnDemand:
    """What runs schedules where nothing else has objects."""
    return HostOnDemand(application, CLASSES)


class Schedules:
    """The schedules of a process, by name: on its event loop, asked from its threads.

    Made on the loop that they run on, with what calls objects there.
    """

    def __init__(self, call_object: Callable[..., Awaitable[Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._call_object = call_object

    def ask(self, name: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a method of a schedule, from another thread. Raises what it raises."""
        call = self.call(name, method, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def call(self, name: str, method: str, *args: Any, **kwargs: Any) -> Any:
        check_name(name, "a schedule's name")
        return await self._call_object(object_id(CLASS_NAME, name), method, *args, **kwargs)


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
        """Adds the event, or replaces it, or leaves it as it is: 201 or 200."""
        try:
            body = _decode_body(read_body(request.environ))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidParameter(f"The body is not an event: {error}.") from error
        asked = (body.runAt, body.repeatMs, body.payload, body.cron, body.zone)
        found = self._schedules.ask(name, "putEvent", id, *asked, preconditions())
        return _shown(found["event"], 201 if found["created"] else 200)

    def show(self, name: str, id: str) -> Response:
        wanted = preconditions()
        event = self._schedules.ask(name, "getEvent", id)
        if event is None:
            return _no_such_event(name, id)
        tag = entity_tag(event)
        if not wanted.matches(tag):
            raise PreconditionFailed("it is not, or no longer, what If-Match names")
        return _shown(event, 200) if wanted.is_new(tag) else not_modified(tag)

    def cancel(self, name: str, id: str) -> Response:
        if not self._schedules.ask(name, "cancelEvent", id, preconditions()):
            return _no_such_event(name, id)
        return Response(status=204)

    def redrive(self, name: str, id: str) -> Response:
        """Gives a parked event a fresh start."""
        try:
            found = self._schedules.ask(name, "redrivenEvent", id, preconditions())
        except InvalidSchedule as error:
            return problem(HTTPStatus.CONFLICT, "no-next-time", f"{id} has no next time: {error}.")
        if found is None:
            return _no_such_event(name, id)
        if not found["redriven"]:
            return problem(HTTPStatus.CONFLICT, "not-parked", f"{id} is not parked.")
        return _shown(found["event"], 200)

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


def _shown(event: dict[str, Any], status: int) -> Response:
    return tagged(json_response(event, status), entity_tag(event))


def _no_such_event(name: str, id: str) -> Response:
    return problem(HTTPStatus.NOT_FOUND, "event-not-found", f"{name} has no event {id}.")
