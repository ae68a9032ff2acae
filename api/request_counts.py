"""Requests counted by method, route and status, for the metrics (`metrics.py`).

Methods and routes are those that we know: whoever asks must not be able to make new names.
"""

from collections.abc import Callable
from typing import Any

from reservation_expiry.api.requests import Scope, Send
from reservation_expiry.infrastructure.measures import Measures

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
UNKNOWN = "(none)"  # the route of what is none of ours


def counted(measures: Measures, scope: Scope, send: Send, route: Callable[[bytes], str]) -> Send:
    """`send`, which counts the answer of this request when it begins."""

    async def count_and_send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            method = scope["method"] if scope["method"] in METHODS else "other"
            measures.requests_of(method, route(scope["raw_path"]))[message["status"]] += 1
        await send(message)

    return count_and_send
