"""The family of holds: one table of its routes.

It says of each its method, path, body, answers, and what headers and parameters it needs.
Routing, validation (`holds.py`) and the OpenAPI document (`openapi.py`) follow from it.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from reservation_expiry.api.read_routes import MAX_INTEGER

DEFAULT_LONGEST_SECONDS = 86_400  # of a hold, unless `serve --longest-hold` says otherwise
MOST_SECONDS = 30 * 86_400  # that it may say
MAX_CAPACITY = 1_000_000
MAX_LINES = 100

Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_CAPACITY)]
Ttl = Annotated[int, msgspec.Meta(ge=1, le=MOST_SECONDS)]
Milliseconds = Annotated[int, msgspec.Meta(ge=100_000_000_000, le=MAX_INTEGER)]


class LineBody(msgspec.Struct, forbid_unknown_fields=True):
    item: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:-]{1,100}\Z")]
    units: Count = 1


class PutBody(msgspec.Struct, forbid_unknown_fields=True):
    ttlSeconds: Ttl
    lines: Annotated[tuple[LineBody, ...], msgspec.Meta(max_length=MAX_LINES)] = ()
    owner: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    metadata: dict[str, Any] | None = None


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    """One of `ttlSeconds` and `expiresAt`."""

    ttlSeconds: Ttl | None = None
    expiresAt: Milliseconds | None = None
    shorten: bool = False


class NoBody(msgspec.Struct, forbid_unknown_fields=True):
    """`{}`"""


class CapacityBody(msgspec.Struct, forbid_unknown_fields=True):
    capacity: Annotated[int, msgspec.Meta(ge=0, le=MAX_CAPACITY)]


class InvalidBody(Exception):
    """A body, a token or a key that is not allowed; the text says what is."""


@dataclass(frozen=True)
class Route:
    """`view` is a method of HoldViews; `answers` are the statuses beside 400 and 503."""

    method: str
    path: str
    view: str
    body: type[msgspec.Struct] | None
    answers: tuple[int, ...]
    needs: tuple[str, ...] = ()  # headers
    query: tuple[str, ...] = ()  # parameters


_COMMAND = ("Hold-Token", "Idempotency-Key", "If-Match")
PAGE = ("status", "owner", "item", "prefix", "dueBefore", "sort", "limit", "cursor")
ROUTES = (
    Route("GET", "/holds", "page", None, (200,), query=PAGE),
    Route("POST", "/holds", "put_unnamed", PutBody, (201, 409, 422), _COMMAND),
    Route("PUT", "/holds/<name>", "put", PutBody, (200, 201, 409, 412, 422), _COMMAND),
    Route("GET", "/holds/<name>", "show", None, (200, 404), query=("at", "version")),
    *(
        Route(
            "POST",
            f"/holds/<name>/{act}",
            act,
            ExtendBody if act == "extend" else NoBody,
            (200, 403, 404, 409, 412, 422),
            _COMMAND,
        )
        for act in ("extend", "confirm", "release", "cancel")
    ),
    Route("PUT", "/items/<name>", "set_item", CapacityBody, (200, 422), ("Idempotency-Key",)),
    Route("GET", "/items/<name>", "show_item", None, (200,)),
    Route("GET", "/items", "items", None, (200,), query=("limit", "after")),
)
