"""Connections with time limits: uvicorn's HTTP/1.1 protocol, and what it leaves open.

uvicorn closes a connection that is idle after an answer; it waits for ever for the first
request, for the rest of a head, and for a reader that takes nothing. Those end here. Only
asyncio's own callbacks (`connection_made`, `data_received`, `pause_writing`, ...) and the
parser's (`on_message_begin`, ...) are extended; `tests/api/test_door.py` fails if uvicorn
or httptools ceases to call them.
"""

import asyncio
import resource
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reservation_expiry.api import limits
from reservation_expiry.api.contract import BAD_ID, refusal

SWEEP_SECONDS = 1.0  # how late a limit may be noticed
FILES_FOR_ALL_ELSE = 256  # descriptors that connections leave for databases and the like

_REFUSALS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
    505: b"HTTP Version Not Supported",
}


class _HeadRefused(Exception):
    """Stops the parser; the connection has had its answer."""


class Connections:
    """The open connections of one process. `sweep` runs for as long as it serves."""

    def __init__(self) -> None:
        self.most = min(limits.CONNECTIONS, _open_files() - FILES_FOR_ALL_ELSE)
        self.open: set[BoundedProtocol] = set()
        self.unread: set[BoundedProtocol] = set()  # whose readers are behind

    def protocol(self, *args: Any, **named: Any) -> "BoundedProtocol":
        """What uvicorn makes for each connection."""
        return BoundedProtocol(self, *args, **named)

    def unread_bytes(self) -> int:
        """Of answers that have been given and not been taken. Streams have limits of their own."""
        return sum(each.unread_bytes() for each in self.unread if not each.streams)

    def cut(self, scope: dict[str, Any]) -> None:
        """Ends the connection of a request whose reader is behind, at once."""
        for connection in list(self.unread):
            if connection.is_of(scope):
                connection.transport.abort()

    async def sweep(self) -> None:
        """Ends connections that have outlived a limit."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for connection in list(self.open):
                connection.end_if_overdue(now)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `_waits_since` is when it began to wait for (the rest of) a head, None
    while a request is under way."""

    def __init__(self, connections: Connections, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._all = connections
        self._waits_since: float | None = None
        self._wait_limit = limits.HEAD_SECONDS
        self._head_bytes = 0
        self._is_last = False  # whether the next answer is the last one
        self._stalled: tuple[float, int] | None = None  # since when, and bytes unread then

    # uvicorn narrows the type of the transport, and so must who inherits from it.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.open.add(self)
        self._wait(limits.HEAD_SECONDS)
        if len(self._all.open) > self._all.most:
            self._refuse(503)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.open.discard(self)
        self._all.unread.discard(self)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._wait(limits.HEAD_SECONDS)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(url, limits.TARGET_BYTES, 414)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name + value, limits.HEAD_BYTES, 431)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._waits_since = None
        self._refuse_other_versions()
        super().on_headers_complete()
        if self._is_last:
            super().shutdown()

    def on_response_complete(self) -> None:
        self._wait(limits.IDLE_SECONDS)
        super().on_response_complete()

    def shutdown(self) -> None:
        """The process drains. Who has connected and not asked yet may do so for a moment: it
        cannot know, and a connection that is closed on it would be an error to it."""
        if not self.cycle and not self.transport.is_closing():
            self._is_last = True
            self._wait(limits.LAST_CHANCE_SECONDS)
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Called while what the parser refused is being handled. A target that is none is a
        path without a route, to a client; what else is wrong has no words of the contract."""
        if not self.transport.is_closing():  # what was refused here has had its answer
            is_target = isinstance(sys.exception(), httptools.HttpParserInvalidURLError)
            body = refusal(400, BAD_ID)[1] if is_target else b""
            self._refuse(400, body)

    def pause_writing(self) -> None:
        self._stalled = (self.loop.time(), self.unread_bytes())
        self._all.unread.add(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = None
        self._all.unread.discard(self)
        super().resume_writing()

    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def is_of(self, scope: dict[str, Any]) -> bool:
        """Whether it is the connection of a request that is under way. (Doors copy scopes.)"""
        return self.cycle is not None and self.cycle.scope["state"] is scope["state"]

    @property
    def streams(self) -> bool:
        """Whether what is under way is a stream (`event_stream.py`)."""
        return self.cycle is not None and "streams" in self.cycle.scope["state"]

    def end_if_overdue(self, now: float) -> None:
        if self._waits_since is not None and now - self._waits_since > self._wait_limit:
            if self._head_bytes:
                self._refuse(408)
            else:
                self.transport.close()
        elif self._stalled is not None and now - self._stalled[0] > limits.STALL_SECONDS:
            unread = self.unread_bytes()
            if unread >= self._stalled[1]:
                self.transport.abort()
            self._stalled = (now, unread)

    def _refuse_other_versions(self) -> None:
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(505)
            raise _HeadRefused

    def _wait(self, seconds: float) -> None:
        self._waits_since, self._wait_limit = self.loop.time(), seconds

    def _count(self, part: bytes, limit: int, status: int) -> None:
        self._head_bytes += len(part)
        if self._head_bytes > limit:
            self._refuse(status)
            raise _HeadRefused

    def _refuse(self, status: int, body: bytes = b"") -> None:
        """An answer in place of the app's, after which nothing of this connection is read."""
        self._waits_since = None
        kind = b"content-type: application/json\r\n" if body else b""
        head = b"HTTP/1.1 %d %s\r\n%scontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, _REFUSALS[status], kind, len(body)) + body)
        self.transport.close()


def _open_files() -> int:
    """How many files this process may open, after asking for as many as are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.CONNECTIONS + FILES_FOR_ALL_ELSE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
