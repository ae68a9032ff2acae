"""Requests on the family of holds made into commands, wherever they come in.

The routes are a table (`hold_routes.py`). What they ask is validated here, for Flask's views
(`holds.py`) and for the event loop in front of them (`front.py`) alike.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus

import msgspec

from reservation_expiry.api.hold_answers import render_hold, render_item
from reservation_expiry.api.hold_routes import (
    CapacityBody,
    ExtendBody,
    InvalidBody,
    NoBody,
    PutBody,
    Route,
)
from reservation_expiry.api.preconditions import preconditions_of
from reservation_expiry.domain import guarded
from reservation_expiry.domain.errors import HoldRefused
from reservation_expiry.domain.ids import aggregate_id, is_item_name
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.domain.terms import Line, Terms, summed
from reservation_expiry.infrastructure.hold_commands import (
    ActOnHold,
    Command,
    Decide,
    Keyed,
    SetCapacity,
)

MAX_METADATA_BYTES = 4_096
_TOKEN = re.compile(r"[\x21-\x7e]{16,200}")
_KEY = re.compile(r"[\x20-\x7e]{1,200}")


@dataclass(frozen=True)
class HoldRequest:
    """`header` gives a header's text, None if it is not there; `raw` is the body."""

    method: str
    path: str
    header: Callable[[str], str | None]
    raw: bytes

    def secret(self) -> str | None:
        token = self._header("Hold-Token", _TOKEN, "16 to 200 visible ASCII characters")
        return None if token is None else hashlib.sha256(token.encode()).hexdigest()

    def keyed(self) -> Keyed | None:
        key = self._header("Idempotency-Key", _KEY, "1 to 200 printable ASCII characters")
        if key is None:
            return None
        # Each part has its length before it, so that no two requests read alike.
        parts = (self.method.encode(), self.path.encode(), (self.secret() or "").encode(), self.raw)
        whole = b"".join(b"%d:%s" % (len(part), part) for part in parts)
        return Keyed(key, hashlib.sha256(whole).hexdigest())

    def _header(self, name: str, pattern: re.Pattern[str], allowed: str) -> str | None:
        text = self.header(name)
        if text is not None and pattern.fullmatch(text) is None:
            raise InvalidBody(f"{name} must be {allowed}.")
        return text


class HoldCommands:
    """`command(route, request, **names)`: the names are those in the route's path."""

    def __init__(self, longest_seconds: int) -> None:
        self._longest_seconds = longest_seconds

    def command(self, route: Route, asked: HoldRequest, **names: str) -> Command:
        """Raises InvalidBody, InvalidParameter or DomainError, saying what is allowed."""
        if route.body is None:
            raise TypeError(f"{route.path} has no command")
        try:
            body = msgspec.json.decode(asked.raw, type=route.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidBody(f"The body is not as it must be: {error}.") from error
        made: Command = getattr(self, route.view)(asked, body, **names)
        return made

    def put_unnamed(self, asked: HoldRequest, body: PutBody) -> Command:
        """Under a name of ours. With a key, the same one each time that it is asked for."""
        keyed = asked.keyed()
        name = secrets.token_hex(10) if keyed is None else keyed.fingerprint[:20]
        return self.put(asked, body, f"hold-{name}")

    def put(self, asked: HoldRequest, body: PutBody, name: str) -> Command:
        hold_id, secret, longest_ms = (
            aggregate_id(name),
            asked.secret(),
            self._longest_seconds * 1000,
        )
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

        items = [line.item for line in terms.lines]
        return _act(asked, hold_id, decide, HTTPStatus.CREATED, items)

    def extend(self, asked: HoldRequest, body: ExtendBody, name: str) -> Command:
        secret = asked.secret()
        if (body.ttlSeconds is None) == (body.expiresAt is None):
            raise InvalidBody("The body must have one of ttlSeconds and expiresAt.")

        def decide(hold: Reservation | None, now_ms: int) -> guarded.Events:
            at_ms = body.expiresAt or now_ms + (body.ttlSeconds or 0) * 1000
            if at_ms <= now_ms:
                sentence = f"expiresAt must lie after now, {now_ms}"
                raise HoldRefused("would-shorten", hold, sentence)
            return guarded.extend(hold, secret, at_ms, body.shorten)

        return _act(asked, aggregate_id(name), decide)

    def confirm(self, asked: HoldRequest, body: NoBody, name: str) -> Command:
        secret = asked.secret()
        return _act(asked, aggregate_id(name), lambda h, now: guarded.confirm(h, secret, now))

    def release(self, asked: HoldRequest, body: NoBody, name: str) -> Command:
        secret = asked.secret()
        return _act(asked, aggregate_id(name), lambda h, now: guarded.release(h, secret, now))

    def cancel(self, asked: HoldRequest, body: NoBody, name: str) -> Command:
        secret = asked.secret()
        return _act(asked, aggregate_id(name), lambda h, now: guarded.cancel(h, secret, now))

    def set_item(self, asked: HoldRequest, body: CapacityBody, name: str) -> Command:
        refuse_item_name(name)
        return SetCapacity(name, body.capacity, render_item, asked.keyed())


def refuse_item_name(name: str) -> None:
    if not is_item_name(name):
        raise InvalidBody("An item's name must be 1 to 100 of A-Z a-z 0-9 . _ : -")


def _act(
    asked: HoldRequest,
    hold_id: str,
    decide: Decide,
    status: HTTPStatus = HTTPStatus.OK,
    items: Sequence[str] = (),
) -> Command:
    wanted, render = preconditions_of(asked.header), partial(render_hold, status)
    return ActOnHold(hold_id, decide, wanted, render, asked.keyed(), items)
