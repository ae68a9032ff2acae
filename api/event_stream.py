"""The log as it is written, to whoever listens: `GET /events` as a stream of server-sent events
(https://html.spec.whatwg.org/multipage/server-sent-events.html).

One task of a process reads what is new and hands it to all its streams, each event encoded
once. A stream that begins further back reads its own pages until it has caught up. Nobody has
a thread, and nobody waits for a reader: one that is too far behind is cut off, and comes
again with the id of the last event that it has seen.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec

from reservation_expiry.api import limits
from reservation_expiry.api.read_routes import MAX_INTEGER, MAX_LIMIT, InvalidParameter, integer
from reservation_expiry.api.rendering import render_event
from reservation_expiry.api.request_ids import id_headers
from reservation_expiry.api.requests import BadStream, OtherLog, Receive, Scope, Send
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.domain.ids import named
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import Overloaded, StoreStopped
from reservation_expiry.infrastructure.stores.sql.queries import RecordedEvent

LOOK_SECONDS = 0.1  # for what is new, while anybody listens
LOOK_SECONDS_FOR_MANY = 0.25  # each look costs every stream a write
MANY = 200
CHECK_SECONDS = 1.0  # whether it still is the same log, and tokens are still good
COMMENT_SECONDS = 10.0
PAGE_EVENTS = 500
PIECE_BYTES = 64 * 1024
RETRY_MS = 1_000  # after which browsers connect again

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or nginx would keep events until it has a buffer full
)
_COMMENT = b":\n\n"
_EVENT_ID = re.compile(rb"([0-9a-f]{1,32}):([0-9]{1,16})")
_KNOWN = frozenset(("after", "last", "log"))

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Start(NamedTuple):
    """Where a client wants to begin: behind `after`, or with the `last` so many, or with what
    comes. `log` is the log that it means, if it says so."""

    after: int | None
    last: int | None
    log: str | None


class Frames(NamedTuple):
    """Events as they are sent, and the position of the newest."""

    position: int
    data: bytes


class Standing(NamedTuple):
    log_id: str
    head: int


class EventStreams:
    """The streams of a process.

    `cut` ends the connection of a request at once; `is_valid` says whether a token's id still
    is one.
    """

    def __init__(
        self,
        application: ReservationApplication,
        cut: Callable[[Scope], None],
        is_valid: Callable[[str], bool],
    ) -> None:
        self._measures = application.measures
        self._application = application
        self._queries = application.queries
        self._encode = msgspec.json.Encoder().encode
        self._cut = cut
        self._is_valid = is_valid
        self._threads = ThreadPoolExecutor(4, "event streams")
        self._live: set[Stream] = set()
        self._all: set[Stream] = set()
        self._standing = Standing("", 0)  # up to where `_live` have been handed everything
        self._following: asyncio.Task[None] | None = None
        self._draining = False

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def drain(self) -> None:
        """The process is to end, and so do they."""
        self._draining = True
        for stream in list(self._all):
            stream.end("the service is shutting down")

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends events until the client goes, or is cut off. Raises BadStream, OtherLog,
        Overloaded, StoreStopped, or what the store raises, before anything is sent."""
        if self._draining:
            raise StoreStopped("the service is shutting down")
        if self._measures.streams >= limits.STREAMS:
            raise Overloaded(f"{limits.STREAMS} streams are open")
        self._measures.streams += 1
        scope["state"]["streams"] = True
        stream = Stream(scope, receive, send)
        try:
            position = await self._begin(start_of(scope))
            if self._draining:
                raise StoreStopped("the service is shutting down")
            self._all.add(stream)
            await stream.run(self._catch_up(stream, position))
        finally:
            self._measures.streams -= 1
            self._all.discard(stream)
            self._live.discard(stream)

    async def _begin(self, start: Start) -> int:
        """The position that it begins behind."""
        standing = await self._in_thread(self._look_where)
        if start.log not in (None, standing.log_id):
            raise OtherLog(f"this is the log {standing.log_id}, and not {start.log}: begin anew")
        if start.after is not None and start.after > standing.head:
            raise OtherLog(
                f"the log ends at {standing.head}, before {start.after}: it was restored from a "
                "backup; begin anew"
            )
        if self._following is None:
            self._standing = standing
            self._following = asyncio.create_task(self._follow())
            self._following.add_done_callback(self._followed)
        if start.last is not None:
            return max(0, standing.head - start.last)
        return self._standing.head if start.after is None else start.after

    async def _catch_up(self, stream: "Stream", position: int) -> None:
        """Sends what is behind the others, a page at a time; from then on it is one of them."""
        while position > self._standing.head:  # the others are not as far yet
            await asyncio.sleep(LOOK_SECONDS)
        while position < self._standing.head:
            frames = await self._in_thread(self._read, position, self._standing.head)
            if frames is None:
                break
            await stream.put(frames.data)
            position = frames.position
        self._live.add(stream)

    async def _follow(self) -> None:
        """For as long as anybody listens."""
        loop = asyncio.get_running_loop()
        checked = said = loop.time()
        is_told = False
        while self._measures.streams:
            await asyncio.sleep(
                LOOK_SECONDS_FOR_MANY if self._measures.streams > MANY else LOOK_SECONDS
            )
            now = loop.time()
            try:
                await self._hand_on()
                if now - checked > CHECK_SECONDS:
                    checked = now
                    await self._check()
                is_told = False
            except ReservationExpiryError as error:
                if not is_told:
                    logger.warning("streams of events wait for the database: %s", error)
                is_told = True
            if now - said > COMMENT_SECONDS:
                said = now
                for stream in list(self._all):
                    stream.comment()

    def _followed(self, task: asyncio.Task[None]) -> None:
        self._following = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("streams of events end", exc_info=error)
            for stream in list(self._all):
                stream.end("something unforeseen went wrong; come again")

    async def _hand_on(self) -> None:
        while True:
            frames = await self._in_thread(self._read, self._standing.head, None)
            if frames is None:
                return
            self._standing = self._standing._replace(head=frames.position)
            for stream in list(self._live):
                if stream.unsent > limits.STREAM_BYTES:
                    logger.warning("a stream of events was cut off: its reader is too far behind")
                    stream.end("the reader is too far behind")
                    self._cut(stream.scope)
                else:
                    stream.add(frames.data)

    async def _check(self) -> None:
        standing = await self._in_thread(self._look_where)
        is_same = standing.log_id == self._standing.log_id and standing.head >= self._standing.head
        for stream in list(self._all):
            token = stream.scope.get("token")
            if self._application.is_deleted or not is_same:
                stream.end("another log has taken the place of this one")
            elif token is not None and not self._is_valid(token.id):
                stream.end("the token is not valid any more")

    async def _in_thread(self, function: Callable[..., T], *values: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *values)

    # In threads

    def _look_where(self) -> Standing:
        return Standing(self._queries.log_id(), self._queries.head().position)

    def _read(self, after: int, stop: int | None) -> Frames | None:
        """The next page behind a position; None if there is nothing."""
        rows = self._queries.events_after(after, PAGE_EVENTS, stop=stop)
        if not rows:
            return None
        return Frames(rows[-1].position, b"".join(map(self._frame, rows)))

    def _frame(self, row: RecordedEvent) -> bytes:
        shown = named(row.originator_id) | render_event(row, self._application.mapper)
        data = self._encode(shown).replace(b"\r", b" ").replace(b"\n", b"\ndata: ")
        name = f"{self._standing.log_id}:{row.position}".encode()
        return b"id: %b\ndata: %b\n\n" % (name, data)


class Stream:
    """One client's. `unsent` bytes wait for it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.unsent = 0
        self._receive = receive
        self._send = send
        self._waiting: list[bytes] = []
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._why: str | None = None  # it ends

    def add(self, data: bytes) -> None:
        """Sends it as soon as that can be."""
        self._waiting.append(data)
        self.unsent += len(data)
        self._room.clear()
        self._news.set()

    async def put(self, data: bytes) -> None:
        """Sends it, and returns when the client has taken what was before it."""
        if self.unsent:
            await self._room.wait()
        self.add(data)

    def comment(self) -> None:
        """Says that it is still there, unless something else is about to."""
        if not self._waiting:
            self.add(_COMMENT)

    def end(self, why: str) -> None:
        if self._why is None:
            self._why = why
            self._news.set()

    async def run(self, beginning: Coroutine[Any, Any, None]) -> None:
        """Sends until it is ended, or the client goes."""
        tasks = [asyncio.create_task(beginning), asyncio.create_task(self._watch())]
        try:
            tasks[0].add_done_callback(self._began)
            await self._run()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _run(self) -> None:
        headers = [*_HEADERS, *id_headers(self.scope)]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self.add(b"retry: %d\n\n" % RETRY_MS)
        while self._why is None:
            await self._news.wait()
            self._news.clear()
            waiting, self._waiting = self._waiting, []
            await self._send_all(b"".join(waiting))
            if not self.unsent:
                self._room.set()
        await self._send_body(f": {self._why}\n\n".encode(), more=False)

    async def _send_all(self, data: bytes) -> None:
        """In pieces, so that a reader who takes nothing leaves no more than one of them with
        the connection."""
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            await self._send_body(piece, more=True)
            self.unsent -= len(piece)

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.end("the client has gone")

    def _began(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a stream of events ends: %s", error)
            self.end("the log cannot be read")


def wants_stream(scope: Scope) -> bool:
    """Whether a GET of /events asks for a stream, and not for a page."""
    accepted = (value for name, value in scope["headers"] if name == b"accept")
    return any(b"text/event-stream" in value.lower() for value in accepted)


def start_of(scope: Scope) -> Start:
    """Where a request wants to begin. Raises BadStream."""
    parsed = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if parsed.keys() - _KNOWN or any(len(values) > 1 for values in parsed.values()):
        raise BadStream("a stream of events takes after or last, and log, each once")
    asked = {name: value for name, (value,) in parsed.items()}
    try:
        after = integer("after", None, 0, MAX_INTEGER, asked)
        last = integer("last", None, 0, MAX_LIMIT, asked)
    except InvalidParameter as error:
        raise BadStream(str(error)) from error
    seen = [value for name, value in scope["headers"] if name == b"last-event-id"]
    if seen and seen[-1]:  # a browser that comes again says so, at the address of the first time
        found = _EVENT_ID.fullmatch(seen[-1])
        if found is None:
            raise BadStream(
                "Last-Event-ID is the id of an event of such a stream: <log>:<position>"
            )
        return Start(int(found[2]), None, found[1].decode())
    if after is not None and last is not None:
        raise BadStream("give after or last, not both")
    return Start(after, last, asked.get("log"))
