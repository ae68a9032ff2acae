"""What can be asked of a service, as calls."""

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from reservation_client.exchange import Call

KEY, TOKEN = "Idempotency-Key", "Hold-Token"


def new_token() -> str:
    """What only the holder knows."""
    return secrets.token_urlsafe(24)


def put(
    name: str | None,
    token: str,
    ttl_seconds: int,
    lines: Mapping[str, int],
    owner: str | None,
    metadata: Mapping[str, Any] | None,
) -> Call:
    """Takes a hold; a name of the service's own if there is none."""
    body = {
        "ttlSeconds": ttl_seconds,
        "lines": [{"item": item, "units": units} for item, units in lines.items()],
        "owner": owner,
        "metadata": None if metadata is None else dict(metadata),
    }
    body = {key: value for key, value in body.items() if value is not None}
    if name is None:
        return Call("POST", "/holds", body, _headers(token))
    return Call("PUT", f"/holds/{quote(name, safe='')}", body, _headers(token))


def command(name: str, word: str, token: str, body: Mapping[str, Any] | None = None) -> Call:
    """extend, confirm, release or cancel."""
    return Call("POST", f"/holds/{quote(name, safe='')}/{word}", body or {}, _headers(token))


def show(name: str) -> Call:
    return Call("GET", f"/holds/{quote(name, safe='')}")


def holds(params: Mapping[str, Any]) -> Call:
    return Call("GET", "/holds", params=_given(params))


def set_item(name: str, capacity: int) -> Call:
    key = {KEY: secrets.token_urlsafe(18)}
    return Call("PUT", f"/items/{quote(name, safe='')}", {"capacity": capacity}, key)


def item(name: str) -> Call:
    return Call("GET", f"/items/{quote(name, safe='')}")


def events(after: int, log_id: str | None, limit: int) -> Call:
    return Call("GET", "/events", params=_given({"after": after, "log": log_id, "limit": limit}))


def _headers(token: str) -> dict[str, str]:
    """A key for each command: it is the same when the command is asked again."""
    return {TOKEN: token, KEY: secrets.token_urlsafe(18)}


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if value is not None}
