"""Reads beyond the contract: health, lists, histories and the feed of the log.

They live on paths that the contract leaves free, answer GET only, and speak of errors
in problem documents.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeVar, get_args

from flask import Flask, Response, request

from reservation_expiry.api.bodies import json_response
from reservation_expiry.api.problems import problem
from reservation_expiry.api.rendering import render, render_event
from reservation_expiry.domain.ids import aggregate_id, is_name, named
from reservation_expiry.domain.reservation import Status
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.readiness import Readiness
from reservation_expiry.infrastructure.tokens import Token

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
MAX_INTEGER = 2**53 - 1
STATUSES: tuple[str, ...] = get_args(Status)

Default = TypeVar("Default", int, None)
Word = TypeVar("Word", bound=str)


class InvalidParameter(Exception):
    """A query parameter that is not allowed; the text says what is."""


def add_read_routes(app: Flask, application: ReservationApplication, namespace: str) -> None:
    views = ReadViews(application, namespace)
    for path, view in (
        ("/healthz", views.healthz),
        ("/readyz", views.readyz),
        ("/reservations", views.reservations),
        ("/reservations/<name:name>/events", views.history),
        ("/events", views.events),
        ("/whoami", views.whoami),
    ):
        app.add_url_rule(path, view_func=view, provide_automatic_options=False)
    app.register_error_handler(
        InvalidParameter,
        lambda error: problem(HTTPStatus.BAD_REQUEST, "invalid-parameter", str(error)),
    )


class ReadViews:
    def __init__(self, application: ReservationApplication, namespace: str) -> None:
        self._application = application
        self._namespace = namespace
        self._mapper = application.mapper

    def healthz(self) -> Response:
        """This process lives."""
        return json_response({"status": "ok"})

    def readyz(self) -> Response:
        """This process does its job: writes, and looks after its alarms."""
        return readiness_response(self._application.readiness())

    def reservations(self) -> Response:
        """A page of reservations in order of their ids."""
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        found = self._application.queries.reservations(
            status=choice("status", STATUSES),
            prefix=matching("prefix", r"[a-z0-9-]{0,40}", "up to 40 of a-z, 0-9 and -"),
            due_before_ms=integer("dueBefore", None, 0, MAX_INTEGER),
            after=_cursor("cursor"),
            limit=limit + 1,
        )
        page = found[:limit]
        more = len(found) > limit
        return json_response(
            {
                "reservations": [render(state.name, state) for state in page],
                "nextCursor": _encode_cursor(page[-1].name) if more else None,
            }
        )

    def history(self, name: str) -> Response:
        """One reservation's events, in order of version."""
        after = integer("after", 0, 0, MAX_INTEGER)
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        rows = self._application.queries.events_of(
            aggregate_id(name), after_version=after, limit=limit
        )
        if not rows and self._application.get(name) is None:
            return problem(HTTPStatus.NOT_FOUND, "reservation-not-found", f"{name} was never held.")
        return json_response(
            {"reservationId": name, "events": [render_event(row, self._mapper) for row in rows]}
        )

    def whoami(self) -> Response:
        """Whose token the request came with, and what it may."""
        token: Token | None = request.environ.get("asgi.scope", {}).get("token")
        if token is None:
            return json_response({"authType": "none", "namespace": self._namespace})
        return json_response(
            {
                "authType": "token",
                "name": token.name,
                "scope": token.scope,
                "expiresAt": token.expires_at_ms,
                "namespace": self._namespace,
            }
        )

    def events(self) -> Response:
        """The log, from behind a position on, or the last events of it. Ask again with `next`
        to follow it, and with `log`, its id, to be told if another has taken its place."""
        limit = integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        queries, last = self._application.queries, integer("last", None, 0, MAX_LIMIT)
        if last is None:
            after = integer("after", 0, 0, MAX_INTEGER)
        elif "after" in request.args:
            raise InvalidParameter("give after or last, not both.")
        else:
            after = max(0, queries.head().position - last)
        log_id, wanted = queries.log_id(), request.args.get("log")
        if wanted not in (None, log_id):
            return problem(
                HTTPStatus.CONFLICT,
                "other-log",
                f"This is the log {log_id}: positions of {wanted} mean nothing here.",
            )
        rows = queries.events_after(after, limit)
        events = [named(row.originator_id) | render_event(row, self._mapper) for row in rows]
        following = rows[-1].position if rows else after
        return json_response({"events": events, "next": following, "logId": log_id})


def readiness_response(found: Readiness) -> Response:
    body = {
        "status": "ready" if found.ready else "not ready",
        "reasons": found.reasons,
        "backlogMs": found.backlog_ms,
        "parked": found.parked,
        "alarms": found.alarm_counts,
        "logLinesDropped": found.log_lines_dropped,
    }
    response = json_response(body, 200 if found.ready else 503)
    if not found.ready:
        response.headers["Retry-After"] = "1"
    return response


def not_ready(reason: str) -> Response:
    """For a process that cannot even tell how it is."""
    response = json_response({"status": "not ready", "reasons": [reason]}, 503)
    response.headers["Retry-After"] = "1"
    return response


def integer(
    name: str, default: Default, low: int, high: int, given: Mapping[str, str] | None = None
) -> int | Default:
    """A query parameter. Raises InvalidParameter."""
    text = (request.args if given is None else given).get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,16}", text) or not low <= int(text) <= high:
        raise InvalidParameter(f"{name} must be an integer from {low} to {high}.")
    return int(text)


def choice(
    name: str, allowed: tuple[Word, ...], given: Mapping[str, str] | None = None
) -> Word | None:
    """A query parameter, None if it is not there. Raises InvalidParameter."""
    text = (request.args if given is None else given).get(name)
    found = next((word for word in allowed if word == text), None)
    if text is not None and found is None:
        raise InvalidParameter(f"{name} must be one of: {', '.join(allowed)}.")
    return found


def text(name: str, given: Mapping[str, str] | None = None) -> str | None:
    """A query parameter, None if it is not there. Raises InvalidParameter."""
    found = (request.args if given is None else given).get(name)
    if found is not None and "\0" in found:
        raise InvalidParameter(f"{name} must have no NUL character in it.")
    return found


def matching(name: str, pattern: str, allowed: str) -> str:
    text = request.args.get(name, "")
    if not re.fullmatch(pattern, text):
        raise InvalidParameter(f"{name} must be {allowed}.")
    return text


def _cursor(name: str) -> str:
    text = request.args.get(name)
    if text is None:
        return ""
    try:
        after = base64.b64decode(text, altchars=b"-_", validate=True).decode("ascii")
    except (ValueError, binascii.Error):  # UnicodeError is a ValueError
        after = ""
    if not is_name(after):
        raise InvalidParameter(f"{name} must be a nextCursor of an earlier answer.")
    return after


def _encode_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("ascii")).decode("ascii")
