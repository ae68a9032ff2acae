"""Holds with terms, and items, over HTTP.

The routes are a table (`hold_routes.py`). Errors are problem documents. Every command is
decided and answered in one transaction, so requests with one Idempotency-Key never run side
by side.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus

import msgspec
from flask import Flask, Response, request

from reservation_expiry.api.bodies import json_response, read_body
from reservation_expiry.api.hold_answers import (
    render_hold,
    render_item,
    shown_hold,
    shown_item,
)
from reservation_expiry.api.hold_pages import page_of_holds, replayed
from reservation_expiry.api.hold_routes import (
    ROUTES,
    CapacityBody,
    ExtendBody,
    InvalidBody,
    NoBody,
    PutBody,
    Route,
)
from reservation_expiry.api.preconditions import preconditions
from reservation_expiry.api.problems import problem
from reservation_expiry.api.read_routes import DEFAULT_LIMIT, MAX_INTEGER, MAX_LIMIT, integer
from reservation_expiry.domain import guarded
from reservation_expiry.domain.errors import HoldRefused
from reservation_expiry.domain.ids import aggregate_id, is_item_name
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.domain.terms import Line, Terms, summed
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.hold_commands import (
    ActOnHold,
    Answered,
    Decide,
    Keyed,
    SetCapacity,
)
from reservation_expiry.infrastructure.units import DEFAULT_CAPACITY

MAX_METADATA_BYTES = 4_096
_TOKEN = re.compile(r"[\x21-\x7e]{16,200}")
_KEY = re.compile(r"[\x20-\x7e]{1,200}")


def add_hold_routes(app: Flask, application: ReservationApplication, longest_seconds: int) -> None:
    views = HoldViews(application, longest_seconds)
    for route in ROUTES:
        app.add_url_rule(
            route.path,
            f"hold-{route.method}-{route.path}",
            partial(_answer, route, getattr(views, route.view)),
            methods=[route.method],
            provide_automatic_options=False,
        )
    app.register_error_handler(
        InvalidBody, lambda error: problem(HTTPStatus.BAD_REQUEST, "invalid-body", str(error))
    )


def _answer(route: Route, view: Callable[..., Response], **names: str) -> Response:
    """Validates what the route says, and asks the view."""
    if route.body is None:
        return view(**names)
    raw = read_body(request.environ)
    try:
        body = msgspec.json.decode(raw, type=route.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidBody(f"The body is not as it must be: {error}.") from error
    return view(body=body, keyed=_keyed(raw), **names)


def _header(name: str, pattern: re.Pattern[str], allowed: str) -> str | None:
    text = request.headers.get(name)
    if text is not None and pattern.fullmatch(text) is None:
        raise InvalidBody(f"{name} must be {allowed}.")
    return text


def _secret() -> str | None:
    token = _header("Hold-Token", _TOKEN, "16 to 200 visible ASCII characters")
    return None if token is None else hashlib.sha256(token.encode()).hexdigest()


def _keyed(raw: bytes) -> Keyed | None:
    key = _header("Idempotency-Key", _KEY, "1 to 200 printable ASCII characters")
    if key is None:
        return None
    # Each part has its length before it, so that no two requests read alike.
    parts = (request.method.encode(), request.path.encode(), (_secret() or "").encode(), raw)
    whole = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    return Keyed(key, hashlib.sha256(whole).hexdigest())


class HoldViews:
    def __init__(self, application: ReservationApplication, longest_seconds: int) -> None:
        self._application = application
        self._longest_seconds = longest_seconds

    def put_unnamed(self, body: PutBody, keyed: Keyed | None) -> Response:
        """Under a name of ours. With a key, the same one each time that it is asked for."""
        name = secrets.token_hex(10) if keyed is None else keyed.fingerprint[:20]
        return self.put(f"hold-{name}", body, keyed)

    def put(self, name: str, body: PutBody, keyed: Keyed | None) -> Response:
        hold_id, secret, longest_ms = aggregate_id(name), _secret(), self._longest_seconds * 1000
        if body.ttlSeconds > self._longest_seconds:
            raise InvalidBody(f"ttlSeconds must be from 1 to {self._longest_seconds}.")
        metadata = None if body.metadata is None else msgspec.json.encode(body.metadata)
        if metadata is not None and len(metadata) > MAX_METADATA_BYTES:
            raise InvalidBody(f"metadata must have at most {MAX_METADATA_BYTES} bytes.")
        terms = Terms(
            until_ms=0,
            lines=summed(tuple(Line(line.item, line.units) for line in body.lines)),
            secret=secret,
            owner=body.owner,
            metadata=None if metadata is None else metadata.decode(),
        )

        def decide(hold: Reservation | None, now_ms: int) -> guarded.Events:
            until_ms = now_ms + longest_ms
            if hold is not None and hold.status == "held" and hold.terms is not None:
                until_ms = hold.terms.until_ms
            wanted = replace(terms, until_ms=until_ms)
            return guarded.put(hold, hold_id, wanted, body.ttlSeconds, secret, now_ms)

        return self._act(hold_id, decide, keyed, HTTPStatus.CREATED)

    def extend(self, name: str, body: ExtendBody, keyed: Keyed | None) -> Response:
        secret = _secret()
        if (body.ttlSeconds is None) == (body.expiresAt is None):
            raise InvalidBody("The body must have one of ttlSeconds and expiresAt.")

        def decide(hold: Reservation | None, now_ms: int) -> guarded.Events:
            at_ms = body.expiresAt or now_ms + (body.ttlSeconds or 0) * 1000
            if at_ms <= now_ms:
                sentence = f"expiresAt must lie after now, {now_ms}"
                raise HoldRefused("would-shorten", hold, sentence)
            return guarded.extend(hold, secret, at_ms, body.shorten)

        return self._act(aggregate_id(name), decide, keyed)

    def confirm(self, name: str, body: NoBody, keyed: Keyed | None) -> Response:
        secret = _secret()
        return self._act(aggregate_id(name), lambda h, now: guarded.confirm(h, secret, now), keyed)

    def release(self, name: str, body: NoBody, keyed: Keyed | None) -> Response:
        secret = _secret()
        return self._act(aggregate_id(name), lambda h, now: guarded.release(h, secret, now), keyed)

    def cancel(self, name: str, body: NoBody, keyed: Keyed | None) -> Response:
        secret = _secret()
        return self._act(aggregate_id(name), lambda h, now: guarded.cancel(h, secret, now), keyed)

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

    def set_item(self, name: str, body: CapacityBody, keyed: Keyed | None) -> Response:
        _refuse_item_name(name)
        command = SetCapacity(name, body.capacity, render_item, keyed)
        return _response(self._application.act(command))

    def show_item(self, name: str) -> Response:
        _refuse_item_name(name)
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

    def _act(
        self,
        hold_id: str,
        decide: Decide,
        keyed: Keyed | None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Response:
        render = partial(render_hold, status)
        command = ActOnHold(hold_id, decide, preconditions(), render, keyed)
        return _response(self._application.act(command))


def _refuse_item_name(name: str) -> None:
    if not is_item_name(name):
        raise InvalidBody("An item's name must be 1 to 100 of A-Z a-z 0-9 . _ : -")


def _response(answered: Answered) -> Response:
    kind = "application/json" if answered.status < 400 else "application/problem+json"
    response = Response(answered.body, answered.status, content_type=kind)
    if answered.version is not None:
        response.set_etag(str(answered.version))
    return response
