"""The log as a stream of server-sent events, over real sockets."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from tests.api.test_auth_served import create_token
from tests.conftest import MakeServer
from tests.crash.staging import hold_in, now_ms
from tests.support.clients import connections, request_head
from tests.support.database import sql
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time
HELD, NOTE_CHARACTERS = 3_000, 3_900  # more together than kernels keep for a reader
ACCEPT = {"Accept": "text/event-stream"}


class Listener:
    """A client of a stream: `events` as they come, `ids` of them, and how it `ended`."""

    def __init__(self, server: Server, path: str = "/events", **headers: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.comments: list[str] = []
        self.status = 0
        self.ended_at: float | None = None
        self._connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers={**ACCEPT, **named})
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Listener":
        wait_for(lambda: self.status or self.ended_at, 5)
        return self

    def __exit__(self, *failure: object) -> None:
        with suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._connection.close()

    @property
    def names(self) -> list[str]:
        """Of reservations held, in the order in which that came."""
        return [e["reservationId"] for e in self.events if e["event"] == "Held"]

    @property
    def positions(self) -> list[int]:
        return [event["position"] for event in self.events]

    def _listen(self) -> None:
        try:
            answer = self._connection.getresponse()
            self.status = answer.status
            for line in answer:
                self._take(line.decode().rstrip("\n"))
        except (OSError, HTTPException):
            pass
        self.ended_at = time.monotonic()

    def _take(self, line: str) -> None:
        name, _, value = line.partition(": ")
        if name == "id":
            self.ids.append(value)
        elif name == "data":
            self.events.append(json.loads(value))
        elif line.startswith(": "):
            self.comments.append(value)


@pytest.fixture
def server(make_server_on_either: MakeServer) -> Server:
    return make_server_on_either().start()


def hold(server: Server, *names: str) -> None:
    for name in names:
        server.hold(name, 600)


def test_events_come_as_they_are_recorded_and_only_those_that_come(server: Server) -> None:
    hold(server, "before")
    with Listener(server) as listener:
        hold(server, "one", "two")
        wait_for(lambda: len(listener.events) >= 4, 5)
        assert listener.names == ["one", "two"]
        page = server.get("/events?after=2").json()
    assert listener.events == page["events"]
    assert listener.ids == [f"{page['logId']}:{position}" for position in (3, 4, 5, 6)]


def test_a_client_that_comes_again_misses_nothing(make_server_on_either: MakeServer) -> None:
    server = make_server_on_either().start()
    with Listener(server, "/events?after=0") as listener:
        hold(server, "one")
        wait_for(lambda: len(listener.events) == 2, 5)
        server.kill()
        wait_for(lambda: listener.ended_at, 5)
    server.start()
    hold(server, "two", "three")
    # The address is the first one's: a browser sends what it has seen with it.
    with Listener(server, "/events?after=0", Last_Event_ID=listener.ids[-1]) as again:
        wait_for(lambda: len(again.events) == 4, 5)
        assert again.names == ["two", "three"]
    assert listener.positions + again.positions == [1, 2, 3, 4, 5, 6]


def test_the_last_so_many_are_had_first(server: Server) -> None:
    hold(server, "one", "two")
    with Listener(server, "/events?last=3") as listener:
        wait_for(lambda: len(listener.events) == 3, 5)
        hold(server, "three")
        wait_for(lambda: len(listener.events) == 5, 5)
        assert listener.positions == [2, 3, 4, 5, 6]


def test_all_come_in_order_to_all_while_several_processes_write(
    make_server_on_either: MakeServer,
) -> None:
    server = make_server_on_either("--workers", "2").start()
    hold_in(server.database, [f"early-{n:04}" for n in range(1_500)], due_at_ms=now_ms() + 900_000)
    listeners = [Listener(server, "/events?after=0") for _ in range(6)]
    with ThreadPoolExecutor(4) as clients:
        for number in range(200):
            clients.submit(server.hold, f"late-{number}", 600)
    head = server.get("/events?last=0").json()["next"]
    for listener in listeners:
        with listener:
            wait_for(lambda each=listener: each.positions[-1:] == [head], 10)
            assert listener.positions == list(range(1, head + 1))


@pytest.mark.parametrize(
    ("path", "seen", "status", "said"),
    [
        ("?after=-1", "", 400, "must be an integer"),
        ("?after=1&last=1", "", 400, "after or last, not both"),
        ("?after=1&after=2", "", 400, "each once"),
        ("?limit=5", "", 400, "after or last, and log"),
        ("?log=abcdef", "", 409, "begin anew"),
        ("?after=7", "", 409, "restored from a backup"),
        ("", "5", 400, "Last-Event-ID"),
        ("", "abcdef:1", 409, "begin anew"),
    ],
)
def test_a_beginning_that_cannot_be_is_refused(
    one_server: Server, path: str, seen: str, status: int, said: str
) -> None:
    answer = one_server.request("GET", f"/events{path}", headers={**ACCEPT, "Last-Event-ID": seen})
    assert answer.status == status
    assert said in answer.json()["detail"]


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("stream")).start()
    yield server
    server.ensure_gone()


def test_who_does_not_ask_for_a_stream_gets_a_page(one_server: Server) -> None:
    answer = one_server.request("GET", "/events?limit=5", headers={"Accept": "*/*"})
    assert answer.json()["events"] == []


def test_a_reader_that_never_reads_is_cut_off_and_holds_up_nobody(make_server: MakeServer) -> None:
    server = make_server().start()
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    deaf.connect(("127.0.0.1", server.port))
    deaf.sendall(request_head("GET", "/events?after=0", "Accept: text/event-stream"))
    with Listener(server) as listener:
        terms = {"ttlSeconds": 600, "metadata": {"note": "x" * NOTE_CHARACTERS}}
        with ThreadPoolExecutor(8) as clients:
            body = json.dumps(terms).encode()
            for number in range(HELD):
                clients.submit(server.request, "PUT", f"/holds/cart-{number}", body)
        wait_for(lambda: len(listener.events) == 2 * HELD, 20)
        wait_for(lambda: b"too far behind" in server.err.read_bytes(), 20)
        hold(server, "still-served")
        wait_for(lambda: listener.names[-1] == "still-served", 5)
    deaf.settimeout(5)
    taken = 0
    while more := deaf.recv(1 << 20):
        taken += len(more)
    deaf.close()
    assert taken < HELD * NOTE_CHARACTERS


def test_sigterm_ends_a_hundred_streams_within_a_second(make_server: MakeServer) -> None:
    server = make_server().start()
    listeners = [Listener(server) for _ in range(100)]
    wait_for(lambda: all(each.status == 200 for each in listeners), 10)
    server.hold("seat-1", 600)
    wait_for(lambda: all(each.events for each in listeners), 5)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: all(each.ended_at for each in listeners), 5)
    assert max(each.ended_at or 0.0 for each in listeners) - began < 1.0
    assert all(each.comments == ["the service is shutting down"] for each in listeners)
    for each in listeners:
        each.__exit__()


def test_more_streams_than_there_may_be_are_told_so(make_server: MakeServer) -> None:
    server = make_server().start()
    asked = request_head("GET", "/events", "Accept: text/event-stream")

    def status() -> int:
        with Listener(server) as listener:
            return listener.status

    with connections(server.port, 1_000, asked) as streams:
        for each in streams:
            assert each.recv(12) == b"HTTP/1.1 200"
        assert status() == 503
        assert server.get("/healthz").status == 200
    wait_for(lambda: status() == 200, 10)  # there are places again


def test_a_stream_ends_when_its_token_is_revoked(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Server(tmp_path_factory.mktemp("auth"), "--auth", "required")
    server.start(wait=False)
    wait_for(server.lives, 20)
    token = create_token(server.database, "follower", "read")
    try:
        wait_for(lambda: _status(server, token) == 200, 5)
        with Listener(server, Authorization=f"Bearer {token}") as listener:
            assert listener.status == 200
            sql(server.database, "UPDATE tokens SET revoked_at_ms = 1")
            wait_for(lambda: listener.ended_at, 5)
            assert listener.comments == ["the token is not valid any more"]
    finally:
        server.ensure_gone()


def _status(server: Server, token: str) -> int:
    return server.request("GET", "/whoami", headers={"Authorization": f"Bearer {token}"}).status


def test_a_log_that_takes_the_place_of_another_ends_its_streams(server: Server) -> None:
    with Listener(server) as listener:
        sql(server.database, "UPDATE log_head SET log_id = 'another'")
        wait_for(lambda: listener.ended_at, 5)
        assert "another log" in listener.comments[0]
