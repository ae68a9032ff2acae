"""The front: every request of a process, on its event loop.

The contract's requests on reservations, which a busy service is made of, and the health routes
are answered on the loop; a hold waits for its commit as a future and takes no thread.
Everything else goes to the Flask app, on a few threads, once its body is there. Both give
the answers of `contract.py`.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from flask import Flask, Response

from reservation_expiry.api import limits
from reservation_expiry.api.access import Access
from reservation_expiry.api.connections import Connections
from reservation_expiry.api.contract import (
    BAD_METHOD,
    Answer,
    BadRequest,
    held,
    now_of,
    refusal,
    replayed,
    shown,
    ttl_of,
)
from reservation_expiry.api.direct import DirectConnections, Reply
from reservation_expiry.api.event_stream import EventStreams, wants_stream
from reservation_expiry.api.gate import route_pattern
from reservation_expiry.api.hold_answers import headers_of_hold
from reservation_expiry.api.hold_requests import HoldCommands, HoldRequest
from reservation_expiry.api.hold_routes import DEFAULT_LONGEST_SECONDS, ROUTES, Route
from reservation_expiry.api.lanes import Lane
from reservation_expiry.api.metrics import Metrics
from reservation_expiry.api.paths import route_of
from reservation_expiry.api.problems import problem_of, unexpected
from reservation_expiry.api.read_routes import not_ready, readiness_response
from reservation_expiry.api.request_counts import UNKNOWN, counted
from reservation_expiry.api.request_ids import HEADER, begin_request, id_headers, request_id
from reservation_expiry.api.requests import (
    Bodies,
    BodyTooLarge,
    ClientGone,
    Receive,
    RequestRefused,
    Scope,
    Send,
    linger,
    send_answer,
)
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.domain.ids import NAME_PATTERN
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.acting import acting
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.async_reservations import AsyncReservations, WouldWait
from reservation_expiry.infrastructure.errors import LogDeleted, Overloaded
from reservation_expiry.infrastructure.hold_commands import Answered
from reservation_expiry.infrastructure.objects.event_schedule import MAX_PAYLOAD_BYTES
from reservation_expiry.infrastructure.settings import BODY_LIMIT_BYTES

SCHEDULE_BYTES = MAX_PAYLOAD_BYTES + limits.LARGE_BYTES  # a payload, and what stands around it
_LARGE_PAGE = re.compile(rb"(?:^|&)limit=[0-9]{3,}(?:&|$)")
_HOLD = re.compile(f"/holds/{NAME_PATTERN}(/[a-z]+)?".encode())
_COMMANDS = {
    (r.method.encode(), r.path.removeprefix("/holds/<name>").encode() or None): r
    for r in ROUTES
    if r.body is not None and r.path.startswith("/holds/<name>")
}
_RESERVATION = re.compile(f"/reservations/({NAME_PATTERN})".encode())
_HOT = re.compile(f"/reservations/({NAME_PATTERN})(/replay-alarm)?".encode())
_JSON = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")

logger = logging.getLogger(__name__)


class Door:
    """What all fronts share: who may ask, health, and a problem document for what goes wrong.

    A front says in `answer` what else there is. Made and closed on the running loop.
    """

    def __init__(self, application: ReservationApplication, access: Access) -> None:
        self._access = access
        self.connections = Connections()
        self.bodies = Bodies()
        self._application = application
        self.metrics = Metrics(application)
        self._health = ThreadPoolExecutor(1, "readiness")

    def close(self) -> None:
        self._health.shutdown(wait=False, cancel_futures=True)

    def drain(self) -> None:
        """The process is to end: what has not come by now is not waited for."""
        self.bodies.drain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        send = counted(self._application.measures, scope, send, self.route)
        try:
            if self._application.is_deleted and scope["raw_path"] != b"/healthz":
                raise LogDeleted("the namespace was deleted")
            self._access.check(scope)
            await self.answer(scope, receive, send)
        except ClientGone:
            pass
        except Exception as error:
            begin_request(scope)
            meanwhile = linger(receive) if isinstance(error, BodyTooLarge) else None
            await self.refuse(send, _response_to(error), meanwhile)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    def route(self, raw_path: bytes) -> str:
        """For the metrics, which must not have a name for each path."""
        raise NotImplementedError

    async def refuse(
        self, send: Send, response: Response, meanwhile: Awaitable[None] | None = None
    ) -> None:
        """Sends an answer that is made of a Flask response, and ends it after `meanwhile`."""
        headers = [*headers_of(response), *_id_header()]
        if response.status_code == 408:
            headers.append(_CLOSE)  # the rest of its body is not waited for
        await send_answer(send, response.status_code, headers, response.get_data(), meanwhile)

    async def health(self, path: str) -> Response:
        """/healthz says that the process lives, /readyz that it does its job. Neither waits
        for a thread that a request may have, or for a database that does not answer."""
        if path == "/healthz":
            return Response(b'{"status":"ok"}', content_type="application/json")
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._health, self._application.readiness)
        try:
            async with asyncio.timeout(limits.READINESS_SECONDS):
                return readiness_response(await asked)
        except TimeoutError:
            return not_ready(f"no answer about the alarms within {limits.READINESS_SECONDS:g} s")


class Front(Door):
    """The front of a service of reservations, over the Flask app with all its routes.

    `replay_route` says whether that has the route for replays.
    """

    def __init__(
        self,
        application: ReservationApplication,
        reservations: AsyncReservations,
        app: Flask,
        access: Access,
        metrics: Metrics,
        *,
        replay_route: bool,
        longest_hold_seconds: int = DEFAULT_LONGEST_SECONDS,
    ) -> None:
        super().__init__(application, access)
        self.metrics = metrics
        self._holds = HoldCommands(longest_hold_seconds)
        self._reservations = reservations
        self._replay_route = replay_route
        self._flask = Lane(app, limits.THREADS, limits.WAITING_FOR_THREADS)
        self._pages = Lane(app, limits.PAGE_THREADS, limits.PAGES_WAITING)
        of = application.measures.requests_of
        self._reads, self._makes = (of(m, "/reservations/<name:name>") for m in ("GET", "POST"))
        self._scrapes = Lane(app, 1, limits.SCRAPES_WAITING)
        self._dashboard = Lane(app, limits.DASHBOARD_THREADS, limits.DASHBOARD_WAITING)
        self.connections = DirectConnections(self.answer_directly)
        self.streams = EventStreams(
            application, lambda scope: self.connections.cut(scope), access.is_valid
        )

    def close(self) -> None:
        super().close()
        self.streams.close()

    def drain(self) -> None:
        super().drain()
        self.streams.drain()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _HOT.fullmatch(scope["raw_path"])
        if found is not None and (found[2] is None or self._replay_route):
            answer = await self._of_contract(scope, receive, *found.groups())
            return await _send(send, answer, id_headers(scope))
        begin_request(scope)
        path = route_of(scope["raw_path"])
        if path in ("/healthz", "/readyz") and scope["method"] == "GET":
            return await self.refuse(send, await self.health(path))
        if path == "/events" and scope["method"] == "GET" and wants_stream(scope):
            return await self.streams.answer(scope, receive, send)
        return await self._ask_flask({**scope, "path": path}, receive, send)

    def route(self, raw_path: bytes) -> str:
        return route_pattern(raw_path) or UNKNOWN

    def answer_directly(
        self, scope: Scope, method: bytes, target: bytes, body: bytes, reply: Reply
    ) -> bool:
        """Reads and holds (`direct.py`), but for what is refused: that is `answer`'s."""
        found = _RESERVATION.fullmatch(target)
        route = None if found is not None else _command_route(method, target)
        if (found is None and route is None) or self._application.is_deleted:
            return False
        scope["method"], scope["raw_path"] = method.decode("ascii"), target
        try:
            self._access.check(scope)
            if route is not None:
                self._act(scope, route, target, body, reply)
            elif found is not None and method == b"GET":
                self._show(Exchange(scope, found[1].decode(), reply, self._reads))
            elif found is not None and method == b"POST":
                exchange = Exchange(scope, found[1].decode(), reply, self._makes)
                self._reservations.submit_hold(exchange.name, ttl_of(body), exchange.reply_held)
            else:
                return False
        except Exception:  # nothing has been done yet: `answer` meets it again, and tells
            return False
        finally:
            acting.set(None)  # what comes next in this context is another's
        return True

    def _act(self, scope: Scope, route: Route, target: bytes, body: bytes, reply: Reply) -> None:
        """A command on a hold with terms."""
        path = target.decode("ascii")
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        if len(headers) != len(scope["headers"]):
            raise RequestRefused("headers of one name are put together elsewhere")

        def header(name: str) -> str | None:
            found = headers.get(name.lower())
            return None if found is None else found.decode("latin-1")

        name = path.split("/")[2]
        asked = HoldRequest(scope["method"], path, header, body)
        command = self._holds.command(route, asked, name=name)
        counts = self._application.measures.requests_of(scope["method"], route.path)
        self._reservations.submit_act(command, Exchange(scope, name, reply, counts).reply_acted)

    def _show(self, exchange: "Exchange") -> None:
        try:
            exchange.reply_shown(self._reservations.get_at_once(exchange.name))
        except WouldWait:
            reading = self._reservations.get_in_thread(exchange.name)
            reading.add_done_callback(exchange.reply_read)

    async def _of_contract(
        self, scope: Scope, receive: Receive, name: bytes, replay: bytes | None
    ) -> Answer:
        if scope["method"] == "GET" and replay is None:
            text = name.decode()
            return shown(text, await self._reservations.get(text))
        if scope["method"] != "POST":
            return refusal(405, BAD_METHOD)
        if replay is not None:  # which may have to be logged
            begin_request(scope)
        with await self.bodies.read(scope, receive) as body:
            try:
                act = self._hold if replay is None else self._replay
                return await act(name.decode(), body)
            except BadRequest as error:
                return refusal(400, str(error))

    async def _hold(self, name: str, body: bytes) -> Answer:
        return held(name, await self._reservations.hold(name, ttl_of(body)))

    async def _replay(self, name: str, body: bytes) -> Answer:
        now_ms = now_of(body, name)
        return replayed(name, *await self._reservations.expire(name, now_ms))

    def _lane(self, scope: Scope) -> Lane:
        path: str = scope["path"]
        if path == "/metrics":
            return self._scrapes  # to be had when all else waits for the database
        if path.startswith("/dashboard"):
            return self._dashboard
        return self._pages if _LARGE_PAGE.search(scope["query_string"]) else self._flask

    async def _ask_flask(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.connections.unread_bytes() > limits.UNREAD_BYTES:
            raise Overloaded("too many answers wait for their readers")
        lane = self._lane(scope)
        lane.refuse_if_full()
        most = SCHEDULE_BYTES if scope["path"].startswith("/schedules/") else BODY_LIMIT_BYTES
        with await self.bodies.read(scope, receive, most) as body:
            await lane.ask(scope, partial(_whole, body), partial(_send_named, send))


def headers_of(response: Response) -> list[tuple[bytes, bytes]]:
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in response.headers.items()
    ]


def _command_route(method: bytes, target: bytes) -> Route | None:
    found = _HOLD.fullmatch(target)
    return None if found is None else _COMMANDS.get((method, found[1]))


class Exchange:
    """A read or a hold that is answered directly, with what its answer needs."""

    __slots__ = ("_counts", "_reply", "_scope", "name")

    def __init__(self, scope: Scope, name: str, reply: Reply, counts: Counter[int]) -> None:
        self.name = name
        self._counts = counts  # of answers, by status
        self._scope = scope
        self._reply = reply

    def reply_shown(self, state: Reservation | None) -> None:
        self._reply_with(shown(self.name, state))

    def reply_read(self, reading: "asyncio.Future[Reservation | None]") -> None:
        if reading.cancelled():
            return  # as they are when the process ends
        error = reading.exception()
        if error is None:
            self.reply_shown(reading.result())
        else:
            self._reply_error(error)

    def reply_held(self, state: Reservation | None, error: BaseException | None) -> None:
        if error is not None:  # there may be a state, too: decided, and not committed
            self._reply_error(error)
        elif state is not None:
            self._reply_with(held(self.name, state))

    def reply_acted(self, answered: Answered | None, error: BaseException | None) -> None:
        if error is not None:  # as above
            self._reply_error(error)
        elif answered is not None:
            begin_request(self._scope)
            headers = [*headers_of_hold(answered), *_id_header()]
            self._counts[answered.status] += 1
            self._reply(answered.status, headers, answered.body)

    def _reply_with(self, answer: Answer) -> None:
        status, body = answer
        self._counts[status] += 1
        self._reply(status, (*json_headers(body), *id_headers(self._scope)), body)

    def _reply_error(self, error: BaseException) -> None:
        begin_request(self._scope)
        refused = _response_to(error)
        headers = [*headers_of(refused), *_id_header()]
        self._counts[refused.status_code] += 1
        self._reply(refused.status_code, headers, refused.get_data())


def json_headers(body: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return _JSON, (b"content-length", str(len(body)).encode())


def _response_to(error: BaseException) -> Response:
    return problem_of(error) if isinstance(error, ReservationExpiryError) else unexpected(error)


async def _whole(body: bytes) -> dict[str, Any]:
    """A body that is there, as ASGI has it."""
    return {"type": "http.request", "body": body, "more_body": False}


async def _send(send: Send, answer: Answer, more: Sequence[tuple[bytes, bytes]]) -> None:
    status, body = answer
    headers = (*json_headers(body), *more)
    await send_answer(send, status, headers, body)


async def _send_named(send: Send, message: dict[str, Any]) -> None:
    """What Flask answers, with the request's id."""
    if message["type"] == "http.response.start":
        message["headers"] = [*message["headers"], *_id_header()]
    await send(message)


def _id_header() -> tuple[tuple[bytes, bytes], ...]:
    """Made now, if the request has none yet."""
    found = request_id()
    return () if found is None else ((HEADER, found.encode("ascii")),)
