"""The id of a request: in its answer, in its problem document, and in what is logged of it.

A client or a proxy may send one (`X-Request-Id`); else one is made when it is first needed, for
most requests never are spoken of.
"""

import re
import secrets
from contextvars import ContextVar

from reservation_expiry.api.requests import Scope

HEADER = b"x-request-id"

_SENT = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_current: ContextVar[Scope | None] = ContextVar("request", default=None)


def begin_request(scope: Scope) -> None:
    """From now on, what happens in this context is of this request. Reads and holds that
    succeed, of which nothing is logged, do without."""
    _current.set(scope)


def take_sent(scope: Scope, value: bytes) -> None:
    """The client's own id, if it is one that can be logged as it is."""
    if _SENT.fullmatch(value):
        scope["request_id"] = value.decode("ascii")


def request_id() -> str | None:
    """Of the request that is being answered; None outside of any."""
    scope = _current.get()
    if scope is None:
        return None
    found: str = scope.get("request_id") or scope.setdefault("request_id", secrets.token_hex(8))
    return found


def id_headers(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """For an answer, if its request has an id by now."""
    found = scope.get("request_id")
    return () if found is None else ((HEADER, found.encode("ascii")),)
