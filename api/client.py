"""A service, as the command line asks it: JSON over one connection, by Python's own HTTP.

It follows no redirect and asks no proxy: a token goes to nobody but the service it was given
for. What the service refuses, and that it cannot be reached, are errors of ours.
"""

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from reservation_expiry.domain.errors import ReservationExpiryError

TIMEOUT_SECONDS = 30.0
ANSWER_BYTES = 64 * 1024 * 1024


class ServiceUnreachable(ReservationExpiryError):
    """Nobody answers there, or nobody that speaks as this service does."""

    code = "service-unreachable"


class ServiceRefused(ReservationExpiryError):
    """The service's own sentence, with the status of its answer."""

    code = "service-refused"

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class InvalidUrl(ReservationExpiryError):
    """It is no address of a service."""

    code = "invalid-url"


def base_of(url: str) -> str:
    """The address of a service as it is kept: http(s)://host[:port], maybe with a path.

    Raises InvalidUrl. A password in it would be sent, and kept, so there may be none.
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment or not url.isascii() or not url.isprintable():
        raise InvalidUrl(
            "a service's address is http://host:port or https://host, with nothing behind it"
        )
    if "@" in parts.netloc or " " in url:
        raise InvalidUrl("a service's address has no user, password or blank in it")
    return url.rstrip("/")


class ServiceClient:
    """`ask` it; `close` it in the end. `token` is sent with every request."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = base_of(url)
        parts = urlsplit(self.url)
        self._path = parts.path
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        host = str(parts.hostname)
        self._connection = (
            HTTPSConnection(
                host, parts.port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context()
            )
            if parts.scheme == "https"
            else HTTPConnection(host, parts.port, timeout=TIMEOUT_SECONDS)
        )

    def __enter__(self) -> "ServiceClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        member: str | None = None,
    ) -> Any:
        """What it answers to a request on a path of these segments, or a member of that;
        parameters of a query that are None are left out. Raises ServiceRefused,
        ServiceUnreachable."""
        path = "/".join([self._path, *(quote(segment, safe="") for segment in segments)])
        wanted = {key: value for key, value in (query or {}).items() if value is not None}
        if wanted:
            path += "?" + urlencode(wanted)
        sent = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, sent, {**self._headers, **(headers or {})})
            response = self._connection.getresponse()
            content = response.read(ANSWER_BYTES)
        except (OSError, HTTPException) as error:
            self._connection.close()
            reason = str(error) or type(error).__name__
            raise ServiceUnreachable(f"{self.url} does not answer: {reason}") from error
        answer = self._decoded(response.status, content)
        if response.status >= 300:
            raise ServiceRefused(response.status, _sentence(response.status, answer))
        if answer is None and response.status == 204:
            return None
        if not isinstance(answer, dict) or (member is not None and member not in answer):
            raise ServiceUnreachable(f"{self.url} answers, but not as this service does")
        return answer if member is None else answer[member]

    def _decoded(self, status: int, content: bytes) -> Any:
        try:
            return json.loads(content) if content else None
        except (ValueError, RecursionError) as error:
            if status >= 300:
                return None
            raise ServiceUnreachable(f"{self.url} answers, but not as this service does") from error


def _sentence(status: int, answer: Any) -> str:
    found = answer.get("detail") or answer.get("error") if isinstance(answer, dict) else None
    if isinstance(found, str):
        return f"the service answers {status}: {found}"
    return f"the service answers {status}"
