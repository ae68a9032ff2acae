"""Requests on the event loop: their bodies read within limits.

A body is read in full before anything is done with it. A large one needs a place of a few,
so that what many clients send together has a bound; one that does not come in time, or is
not wanted any more because the process stops, is given up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from reservation_expiry.api import limits
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.errors import Overloaded, StoreStopped
from reservation_expiry.infrastructure.settings import BODY_LIMIT_BYTES

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]


class ClientGone(Exception):
    """The client went away before it had sent its whole request."""


class RequestRefused(ReservationExpiryError):
    """The request itself is not one that is answered, whatever it asks for."""

    code = "bad-request"
    headers: Mapping[str, str] = MappingProxyType({})  # of the answer


class BodyTooLarge(RequestRefused):
    """More bytes than there may be."""

    code = "body-too-large"

    def __init__(self, limit: int = BODY_LIMIT_BYTES) -> None:
        super().__init__(f"a body may have at most {limit} bytes")


class BodyTooSlow(RequestRefused):
    """The body did not come in time. The rest of it is not read."""

    code = "body-too-slow"

    def __init__(self) -> None:
        super().__init__(f"the body did not come within {limits.BODY_SECONDS:.0f} s")


class BadHost(RequestRefused):
    """HTTP/1.1 asks for one Host, with a name or an address in it (RFC 9112, 3.2)."""

    code = "bad-host"

    def __init__(self) -> None:
        super().__init__("a request has one Host header, with a host name or address in it")


class BadStream(RequestRefused):
    """Something in the request that is not allowed."""

    code = "invalid-parameter"


class OtherLog(RequestRefused):
    """Positions that mean nothing here: the client must begin anew."""

    code = "other-log"


class Bodies:
    """Reads the bodies of one process's requests."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(limits.LARGE_BODIES)
        self.waiting = 0  # for a place
        self._limits: set[asyncio.Timeout] = set()  # of bodies being read
        self._draining = False

    def drain(self) -> None:
        """Waits for no body any more."""
        self._draining = True
        for limit in self._limits:
            limit.reschedule(0)

    async def read(self, scope: Scope, receive: Receive, most: int = BODY_LIMIT_BYTES) -> "Body":
        """The whole body, of at most so many bytes, to be used in a `with` for as long as its
        place is needed.

        Raises BodyTooLarge, BodyTooSlow, ClientGone, Overloaded if too many wait for a place,
        and StoreStopped if it has not come when the process drains.
        """
        declared = _declared_length(scope)
        if declared is not None and declared > most:
            raise BodyTooLarge(most)
        body = Body(self)
        limit = asyncio.timeout(limits.BODY_SECONDS)
        self._limits.add(limit)
        try:
            async with limit:
                if declared is not None and declared > limits.LARGE_BYTES:
                    await body.take_place()
                await body.fill(receive, most)
        except TimeoutError:
            body.release()
            raise (_stopping() if self._draining else BodyTooSlow()) from None
        except BaseException:
            body.release()
            raise
        finally:
            self._limits.discard(limit)
        return body


def _stopping() -> StoreStopped:
    return StoreStopped("the service is shutting down")


class Body:
    """`data`, once it is there. Leaving its `with` gives its place to another."""

    def __init__(self, bodies: Bodies) -> None:
        self.data = b""
        self._bodies = bodies
        self._has_place = False

    async def fill(self, receive: Receive, most: int) -> None:
        parts, size, more = [], 0, True
        while more:
            if size > limits.LARGE_BYTES and not self._has_place:
                await self.take_place()
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise BodyTooLarge(most)
            more = message.get("more_body", False)
        self.data = parts[0] if len(parts) == 1 else b"".join(parts)

    async def take_place(self) -> None:
        bodies = self._bodies
        if bodies.waiting >= limits.LARGE_BODIES_WAITING:
            raise Overloaded("too many large bodies are being read")
        bodies.waiting += 1
        try:
            await bodies.places.acquire()
        finally:
            bodies.waiting -= 1
        self._has_place = True

    def release(self) -> None:
        if self._has_place:
            self._has_place = False
            self._bodies.places.release()

    def __enter__(self) -> bytes:
        return self.data

    def __exit__(self, *_: object) -> None:
        self.release()


def _declared_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)  # the parser takes digits only
    return None


async def send_answer(
    send: Send,
    status: int,
    headers: Headers,
    body: bytes,
    meanwhile: Awaitable[None] | None = None,
) -> None:
    """Sends an answer; it is over, and with it perhaps the connection, after `meanwhile`."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if meanwhile is not None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        body = b""
        await meanwhile
    await send({"type": "http.response.body", "body": body})


async def linger(receive: Receive) -> None:
    """Takes the rest of a body for a while. A connection that is closed while its client still
    sends is reset, and the client may never see its answer (RFC 9112, 9.6)."""
    try:
        async with asyncio.timeout(limits.LINGER_SECONDS):
            while (await receive()).get("more_body"):
                pass
    except TimeoutError:
        pass
