"""Requests that are answered where they are parsed: the same answers as by the long way round.

A request that comes in one piece is answered directly, the same in two pieces is not.
"""

import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import read_all, request_head
from tests.support.database import locked, sql
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time

PAUSE_SECONDS = 0.05  # so that two pieces come in two reads
TTL = b'{"ttlSeconds":60}'
PATH = "/reservations/seat-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("direct")).start()
    try:
        yield server
        assert server.stop() == 0
    finally:
        server.ensure_gone()


def post(path: str, body: bytes, *headers: str, **named: str) -> bytes:
    return request_head("POST", path, f"Content-Length: {len(body)}", *headers, **named) + body


def answers(server: Server, *pieces: bytes) -> list[bytes]:
    """What is answered to the pieces, sent one after the other, and a last request to close."""
    last = request_head("GET", "/", "Connection: close")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        for piece in (*pieces, last):
            connection.sendall(piece)
            time.sleep(PAUSE_SECONDS)
        received = read_all(connection)
    return re.split(rb"(?=HTTP/1\.1 \d)", received)[1:-1]


def alike(answer: bytes) -> bytes:
    """Without what differs from one moment to the next."""
    return re.sub(rb"date: [^\r]*|\d{13}|\b[0-9a-f]{16}\b", b"", answer)


REQUESTS = {
    "a read": request_head("GET", PATH),
    "a read of none": request_head("GET", "/reservations/nobody-1"),
    "a read with a query": request_head("GET", f"{PATH}?a=b"),
    "a read with a body": request_head("GET", PATH, "Content-Length: 2") + b"{}",
    "a read by HEAD": request_head("HEAD", PATH),
    "a hold": post(PATH, TTL),
    "a hold in chunks": request_head("POST", PATH, "Transfer-Encoding: chunked")
    + b"11\r\n%b\r\n0\r\n\r\n" % TTL,
    "a hold of no length": post(PATH, b'{"ttlSeconds":0}'),
    "a hold of no JSON": post(PATH, b"{"),
    "a hold of what is none": post("/reservations/UPPER", TTL),
    "a hold for another host": post(PATH, TTL, host="elsewhere.example"),
    "a hold from another page": post(PATH, TTL, "Origin: http://elsewhere.example"),
    "a hold that waits for 100": post(PATH, TTL, "Expect: 100-continue"),
    "a replay": post(f"{PATH}/replay-alarm", b'{"now":1}'),
    "another method": post(PATH, TTL).replace(b"POST", b"PUT", 1),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_request_in_one_piece_is_answered_as_one_in_two(what: str, server: Server) -> None:
    whole = REQUESTS[what]
    *_, direct = answers(server, whole)
    head, _, body = whole.partition(b"\r\n\r\n")
    cut = len(head) + 5 if body else len(head) // 2
    *_, slow = answers(server, whole[:cut], whole[cut:])
    assert alike(direct) == alike(slow)


def test_requests_in_one_packet_are_answered_in_their_order(server: Server) -> None:
    """Those behind a hold wait for it, and see it."""
    hold, read = post("/reservations/next-1", TTL), request_head("GET", "/reservations/next-1")
    found = answers(server, hold + read + request_head("GET", "/events?limit=1") + hold + read)
    assert [answer.split()[1] for answer in found] == [b"201", b"200", b"200", b"201", b"200"]
    bodies = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in found]
    assert bodies[0] == bodies[1]
    assert bodies[3] == bodies[4]


def test_a_hold_whose_client_has_gone_is_made_and_the_next_is_answered(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(post("/reservations/gone-1", TTL))
    wait_for(lambda: server.state("gone-1")["status"] == "held", 5)
    assert server.hold("gone-2", 60)["status"] == "held"


FAILING = """
from reservation_expiry.infrastructure.errors import StoreUnavailable
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession

commit = SqliteSession.commit

def fail_for_holds(session):
    if session.tails(["reservation/lost-1", "reservation/lost-2"]):
        raise StoreUnavailable("the disk does not take it")
    commit(session)

SqliteSession.commit = fail_for_holds
from reservation_expiry.api.cli import main
main(prog_name="reservation-expiry")
"""


def test_no_hold_is_answered_whose_commit_failed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """It was decided by then, and is not to be told as if it were on the disk."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.py").write_text(FAILING)
    server = Server(folder, command=[sys.executable, str(folder / "failing.py")])
    server._env["PYTHONPATH"] = str(Path(__file__).parents[2])
    server.start()
    try:
        put = post("/holds/lost-2", TTL).replace(b"POST", b"PUT", 1)
        found = answers(
            server, post("/reservations/kept-1", TTL), post("/reservations/lost-1", TTL), put
        )
        assert [answer.split()[1] for answer in found] == [b"201", b"503", b"503"]
        assert all(b"store-unavailable" in answer for answer in found[1:])
        assert sql(server.database, "SELECT name FROM reservations") == [("kept-1",)]
    finally:
        server.ensure_gone()


def test_a_hold_that_waits_for_the_lock_is_answered_while_the_service_drains(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = Server(tmp_path_factory.mktemp("drain")).start()
    try:
        server.hold("seat-1", 60)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            with locked(server.database):
                connection.sendall(post("/reservations/seat-2", TTL))
                time.sleep(0.3)
                server.process.terminate()
                time.sleep(0.3)
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert b"connection: close" in answer
        assert server.process.wait(10) == 0
        assert sql(server.database, "SELECT count(*) FROM reservations") == [(2,)]
    finally:
        server.ensure_gone()
