"""Requests and responses, as objects see them."""

import json
from collections.abc import Iterable, Mapping
from copy import copy
from http import HTTPStatus
from typing import Any, Self
from wsgiref.headers import Headers

HeaderItems = Mapping[str, str] | Iterable[tuple[str, str]] | None


class Body:
    """Text, bytes, or nothing, with its headers."""

    def __init__(self, body: str | bytes | None, headers: HeaderItems) -> None:
        items = headers.items() if isinstance(headers, Mapping | Headers) else headers or ()
        self.headers = Headers([(str(name), str(value)) for name, value in items])
        if isinstance(body, str):
            if "content-type" not in self.headers:
                self.headers["Content-Type"] = "text/plain;charset=UTF-8"
            body = body.encode()
        if not isinstance(body, bytes | None):
            raise TypeError(f"a body is text or bytes, not {type(body).__name__}")
        self.body = body

    def copy(self) -> Self:
        copied = copy(self)
        copied.headers = Headers(self.headers.items())
        return copied

    async def bytes(self) -> bytes:
        return self.body or b""

    async def text(self) -> str:
        return (self.body or b"").decode(errors="replace")

    async def json(self) -> Any:
        """Raises ValueError if the body is not JSON."""
        return json.loads(self.body or b"")


class Request(Body):
    """`url`, `method`, `headers`, `body`; `await request.json()`, `.text()`, `.bytes()`."""

    def __init__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: HeaderItems = None,
        body: str | bytes | None = None,
    ) -> None:
        super().__init__(body, headers)
        self.url = str(url)
        self.method = method.upper()


class _JsonResponse:
    """`Response.json(data)` makes a response, `await response.json()` reads one."""

    def __get__(self, response: "Response | None", of: "type[Response]") -> Any:
        return of.from_json if response is None else super(Response, response).json


class Response(Body):
    """What `fetch` returns. `Response.json(data, status=..., headers=...)` makes JSON."""

    def __init__(
        self,
        body: str | bytes | None = None,
        status: int = 200,
        status_text: str = "",
        headers: HeaderItems = None,
    ) -> None:
        super().__init__(body, headers)
        if not 200 <= int(status) <= 599:
            raise ValueError(f"a response's status is from 200 to 599, not {status}")
        self.status = int(status)
        self.status_text = status_text or _phrase(self.status)

    @property
    def ok(self) -> bool:
        return self.status < 300

    statusText = property(lambda self: self.status_text)

    @classmethod
    def from_json(
        cls, data: Any, status: int = 200, status_text: str = "", headers: HeaderItems = None
    ) -> "Response":
        response = cls(json.dumps(data, allow_nan=False).encode(), status, status_text, headers)
        if "content-type" not in response.headers:
            response.headers["Content-Type"] = "application/json"
        return response

    json = _JsonResponse()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
