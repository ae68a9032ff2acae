"""Requests that are answered where they are parsed, without a task of their own.

uvicorn makes a task, an event and a scope for each request, which costs more than a hold or
a read of one does. A request that is whole within one read of its connection, with nothing
before it that is still to be answered, is first offered to `answer`; what that does not take
goes on as uvicorn has it. So slow senders, pipelines, draining and readers that are behind
stay with what `connections.py` and uvicorn do about them.

The callbacks of the parser are held back until it is known which of the two it is.
"""

from collections.abc import Callable, Iterable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from reservation_expiry.api import limits
from reservation_expiry.api.connections import BoundedProtocol, Connections
from reservation_expiry.api.requests import Headers, Scope

Reply = Callable[[int, Headers, bytes], None]
"""Gives a request its answer: status, headers, body. Once, on the loop."""
Answer = Callable[[Scope, bytes, bytes, bytes, Reply], bool]
"""Whether a request (its scope as far as it is known, method, target, body) is answered, at
once or later."""


class DirectConnections(Connections):
    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    def protocol(self, *args: Any, **named: Any) -> "DirectProtocol":
        return DirectProtocol(self._answer, self, *args, **named)


class _Unawaited:
    """Nobody waits for this event."""

    def set(self) -> None: ...


class _Exchange:
    """Stands where uvicorn keeps the request under way and asks whether it has had its answer."""

    message_event = _Unawaited()
    disconnected = False

    def __init__(self) -> None:
        self.response_complete = False
        self.keep_alive = True


class DirectProtocol(BoundedProtocol):
    """One connection. `_held_back` has the parts of a body while its request is in question."""

    def __init__(self, answer: Answer, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._answer = answer
        self._held_back: list[bytes] | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._held_back is not None:  # its body is to come
            try:
                self._go_on()
            except httptools.HttpParserError:
                self.send_400_response("")

    def on_headers_complete(self) -> None:
        self._refuse_other_versions()
        self._held_back = []

    def on_body(self, body: bytes) -> None:
        if self._held_back is None:
            super().on_body(body)
        else:
            self._held_back.append(body)

    def on_message_complete(self) -> None:
        if self._held_back is not None:
            if self._is_answered(self._held_back):
                self._held_back = None
                return
            self._go_on()
        super().on_message_complete()

    def _go_on(self) -> None:
        """As uvicorn would have it from the end of the head."""
        held_back, self._held_back = self._held_back, None
        if self.transport.is_closing():
            return  # the parser refused what followed the head
        super().on_headers_complete()
        for body in held_back or ():
            super().on_body(body)

    def _is_answered(self, parts: Iterable[bytes]) -> bool:
        parser, cycle = self.parser, self.cycle
        if (
            (cycle is not None and not cycle.response_complete)
            or self.pipeline
            or self.flow.write_paused
            or self._is_last
            or self.expect_100_continue
            or not parser.should_keep_alive()
            or parser.should_upgrade()
            or parser.get_http_version() != "1.1"
        ):
            return False
        body = b"".join(parts)
        if len(body) > limits.LARGE_BYTES:
            return False
        exchange = _Exchange()

        def reply(status: int, headers: Headers, body: bytes) -> None:
            self._reply(exchange, status, headers, body)

        scope: Any = self.scope  # a dict of one kind, or of another, to a type checker
        if not self._answer(scope, parser.get_method(), self.url, body, reply):
            return False
        self.cycle = exchange  # type: ignore[assignment]  # it is what uvicorn asks of one
        if not exchange.response_complete:
            self._waits_since = None
        return True

    def _reply(self, exchange: _Exchange, status: int, headers: Headers, body: bytes) -> None:
        exchange.response_complete = True
        if self.transport.is_closing():
            return
        lines = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        if not exchange.keep_alive:
            lines.append(b"connection: close\r\n")
        lines += (b"\r\n", body)
        self.transport.write(b"".join(lines))
        if not exchange.keep_alive:
            self.transport.close()
        if self.pipeline:
            self.on_response_complete()
        else:
            self._wait(limits.IDLE_SECONDS)
