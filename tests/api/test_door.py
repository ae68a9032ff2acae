"""What stands in front of every route: heads, bodies, hosts, versions, time limits.

Each bad kind of client must be told, or cut off, within a stated time, and hold up nobody
else meanwhile. The limits are shortened in a server of our own (`impatient`), which runs the
product's code in a process with other constants.
"""

import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.api import limits
from reservation_expiry.api.processes import listen
from reservation_expiry.infrastructure.settings import BODY_LIMIT_BYTES
from tests.crash.staging import run_serve
from tests.support.clients import HOLD, connections, exchange, read_all, request_head
from tests.support.server import Server, free_port, wait_for

pytestmark = pytest.mark.real_time

MANY = 300
SOON_SECONDS = 2.0  # for an answer that nobody holds up
PATIENCE = """
import sys
from reservation_expiry.api import limits, connections
limits.HEAD_SECONDS = limits.BODY_SECONDS = limits.IDLE_SECONDS = limits.STALL_SECONDS = 1.0
limits.LINGER_SECONDS = 0.5
connections.SWEEP_SECONDS = 0.1
from reservation_expiry.api.cli import main
main(prog_name="reservation-expiry")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("door"))
    try:
        yield server.start()
    finally:
        server.ensure_gone()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that gives each client a second."""
    folder = tmp_path_factory.mktemp("impatient")
    (folder / "impatient.py").write_text(PATIENCE)
    server = Server(folder, command=[sys.executable, str(folder / "impatient.py")])
    server._env["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        yield server.start()
    finally:
        server.ensure_gone()


def check_that_others_are_served(server: Server, name: str) -> None:
    for ask in (
        lambda: server.get("/healthz").status == 200,
        lambda: server.get("/readyz").status == 200,
        lambda: server.get("/reservations/nobody-1").status == 200,
        lambda: server.hold(name, 600)["status"] == "held",
        lambda: server.get("/reservations?limit=1").status == 200,
    ):
        began = time.monotonic()
        assert ask()
        assert time.monotonic() - began < SOON_SECONDS


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("silent", b""),
        ("half-a-head", b"POST /reservations/slow-1 HTTP/1.1\r\nHo"),
        ("half-a-body", request_head("POST", "/reservations/slow-1", "Content-Length: 100") + b"{"),
        (
            "half-a-chunk",
            request_head("POST", "/reservations/slow-1", "Transfer-Encoding: chunked") + b"5\r\n{",
        ),
        (
            "expects-100",
            request_head(
                "POST", "/reservations/slow-1", "Content-Length: 100", "Expect: 100-continue"
            ),
        ),
        (
            "half-a-schedule",
            request_head("PUT", "/schedules/a/events/b", "Content-Length: 100") + b"{",
        ),
        (
            "a-large-body",
            request_head("POST", "/reservations/slow-1", "Content-Length: 1000000") + b"x" * 70_000,
        ),
        ("http2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
    ],
)
def test_f57_f58_f59_connections_that_stay_open_hold_up_nobody(
    server: Server, kind: str, first: bytes
):
    with connections(server.port, MANY, first):
        check_that_others_are_served(server, kind)
        assert server.get("/reservations/slow-1").json()["status"] == "missing"


def test_f59_more_connections_than_a_thousand_that_say_nothing_are_open_at_once(server: Server):
    with connections(server.port, 1_100):
        check_that_others_are_served(server, "beside-1100")


def test_f65_large_pages_that_nobody_reads_keep_no_other_page_waiting(server: Server):
    """They have threads of their own, and only each other to wait for."""
    for number in range(500):
        server.hold(f"page-{number}", 3600)
    with connections(server.port, MANY, request_head("GET", "/events?limit=1000")):
        began = time.monotonic()
        for _ in range(20):
            assert server.get("/reservations?limit=1").status == 200
        assert time.monotonic() - began < SOON_SECONDS


@pytest.mark.parametrize("first", [b"", b"\r\n\r\n"], ids=["silent", "blank-lines"])
def test_f59_a_connection_that_says_nothing_is_closed(impatient: Server, first: bytes):
    with connections(impatient.port, 1, first) as (connection,):
        assert read_all(connection) == b""


def test_f59_a_head_that_does_not_end_is_told_408(impatient: Server):
    with connections(impatient.port, 1, b"GET /healthz HTTP/1.1\r\nHost: a\r\n") as (connection,):
        assert read_all(connection).startswith(b"HTTP/1.1 408 ")


def test_f59_an_idle_connection_is_closed_and_a_second_head_has_its_limit_too(impatient: Server):
    whole = request_head("GET", "/healthz")
    with connections(impatient.port, 2, whole) as (idle, slow):
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        assert read_all(idle).startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in read_all(slow)


@pytest.mark.parametrize("path", ["/reservations/slow-2", "/schedules/a/events/b"])
@pytest.mark.parametrize("headers", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_f58_a_body_that_does_not_come_is_given_up_with_408(
    impatient: Server, path: str, headers: str
):
    method = "POST" if path.startswith("/res") else "PUT"
    begun = b"5\r\n{" if "chunked" in headers else b"{"
    answer = exchange(impatient.port, request_head(method, path, headers) + begun)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body-too-slow"' in answer
    assert impatient.get("/reservations/slow-2").json()["status"] == "missing"


def test_f58_bodies_that_are_large_wait_for_a_place_and_then_get_one(impatient: Server):
    large = request_head("POST", "/reservations/large-1", "Content-Length: 200000")
    with connections(impatient.port, limits.LARGE_BODIES, large):
        began = time.monotonic()
        body = b'{"ttlSeconds":600,"x":"' + b"x" * 100_000 + b'"}'
        whole = request_head("POST", "/reservations/large-2", f"Content-Length: {len(body)}")
        answer = exchange(
            impatient.port, whole.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + body
        )
        waited = time.monotonic() - began
    # The places come free when the others' second is over, a moment before this one's.
    assert answer.startswith((b"HTTP/1.1 201 ", b"HTTP/1.1 408 "))
    assert waited < 3


def test_f65_a_reader_that_takes_nothing_of_its_answer_is_cut_off(impatient: Server):
    value = json.dumps({"runAt": 2_000_000_000_000, "payload": "x" * 900_000}).encode()
    for number in range(4):
        assert impatient.request("PUT", f"/schedules/large/events/{number}", value).status == 201
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader.settimeout(10)
        reader.connect(("127.0.0.1", impatient.port))
        reader.sendall(request_head("GET", "/events"))
        time.sleep(3)  # the subject: its second and a half is over long before it reads
        head, _, taken = read_all(reader).partition(b"\r\n\r\n")
    (declared,) = re.findall(rb"content-length: (\d+)", head)
    assert len(taken) < int(declared)
    check_that_others_are_served(impatient, "beside-a-reader")


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (400, b"GET / HTTP/1.1\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
        (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
        (505, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
        (414, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 140_000 + b"\r\n\r\n"),
    ],
    ids=["no-host", "two-hosts", "no-name", "empty", "space", "blank", "version", "target", "head"],
)
def test_f57_f71_a_head_that_is_none_is_refused(server: Server, status: int, sent: bytes):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(sent)
        connection.settimeout(10)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 %d " % status)


def test_f71_http_1_0_may_leave_out_its_host(server: Server):
    assert exchange(server.port, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "body",
    [
        b"12\r\n" + HOLD + b"XX0\r\n\r\n",
        b"12\n" + HOLD + b"\r\n0\r\n\r\n",
        b"0x12\r\n" + HOLD + b"\r\n0\r\n\r\n",
        b"12 \x00\r\n" + HOLD + b"\r\n0\r\n\r\n",
        b"-1\r\n" + HOLD + b"\r\n0\r\n\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n" + HOLD + b"\r\n0\r\n\r\n",
    ],
    ids=["no-crlf", "lf-alone", "0x", "nul", "negative", "too-long"],
)
def test_f71_a_chunk_that_is_written_wrong_holds_nothing(server: Server, body: bytes):
    head = request_head("POST", "/reservations/chunk-1", "Transfer-Encoding: chunked")
    assert exchange(server.port, head + body).startswith(b"HTTP/1.1 400 ")
    assert server.get("/reservations/chunk-1").json()["status"] == "missing"


def test_f71_a_chunked_body_that_is_cut_off_where_it_is_whole_json_holds_nothing(server: Server):
    head = request_head("POST", "/reservations/chunk-2", "Transfer-Encoding: chunked")
    with connections(server.port, 1, head + b"12\r\n" + HOLD + b"\r\n"):
        time.sleep(0.1)
    time.sleep(0.2)
    assert server.get("/reservations/chunk-2").json()["status"] == "missing"


@pytest.mark.parametrize("headers", [("Content-Length: 18", "Transfer-Encoding: chunked")])
def test_f71_a_length_and_chunks_together_are_refused(server: Server, headers: tuple[str, str]):
    head = request_head("POST", "/reservations/both-1", *headers)
    answer = exchange(server.port, head + b"12\r\n" + HOLD + b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert server.get("/reservations/both-1").json()["status"] == "missing"


def large_body(first: bytes) -> bytes:
    pairs = (BODY_LIMIT_BYTES - len(first) - 8) // 3
    return first + b',"a":[' + b",".join([b"[]"] * pairs) + b"]}"


@pytest.mark.parametrize(
    ("first", "status", "text"),
    [
        (b'{"ttlSeconds":600', 201, b'"status":"held"'),
        (b'{"ttlSeconds":"600"', 400, b"ttlSeconds must be an integer"),
    ],
)
def test_f60_of_a_body_of_16_mib_only_what_is_needed_is_made(
    server: Server, first: bytes, status: int, text: bytes
):
    body = large_body(first)
    head = request_head(
        "POST", "/reservations/large-3", f"Content-Length: {len(body)}", "Connection: close"
    )
    before = resident_mb(server)
    with connections(server.port, 3, head + body):  # four at once
        answer = exchange(server.port, head + body)
        check_that_others_are_served(server, f"beside-{status}")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert text in answer
    assert resident_mb(server) - before < 250


def test_f60_the_same_as_a_schedules_payload_is_too_large_before_it_is_read(server: Server):
    body = large_body(b'{"runAt":1,"payload":1')
    head = request_head("PUT", "/schedules/a/events/b", f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def resident_mb(server: Server) -> float:
    (pid,) = server.worker_pids()
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/reservations/seat%2d01", 400),
        ("/reservations/%73eat-01", 400),
        ("/reservations%2fseat-01", 400),
        ("/reservations/seat-01%2freplay-alarm", 400),
        ("/%72eservations/seat-01", 400),
        ("/%65vents", 400),
        ("/%68ealthz", 400),
        ("/events%3f", 400),
        ("/schedules/a%2fb", 400),
        ("/schedules/a%5cb", 400),
        ("/schedules/%ff", 400),
        ("/./reservations/seat-01", 200),
        ("/x/%2e%2e/reservations/seat-01", 200),
        ("/reservations\\seat-01", 200),
        ("/schedules/a%20b", 200),
        ("/schedules/caf%C3%A9", 200),
    ],
)
def test_f61_a_path_is_taken_as_it_is_written(server: Server, path: str, status: int):
    answer = exchange(server.port, request_head("GET", path, "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    if status == 400:
        assert b"Use a lowercase reservation ID" in answer


@pytest.mark.parametrize("host", ["localhost", "127.1", "127.0.0.1"])
def test_f42_a_host_is_served_on_all_addresses_that_it_stands_for(tmp_path: Path, host: str):
    server = Server(tmp_path, "--host", host)
    try:
        server.start()
        assert server.get("/healthz").status == 200
        assert server.stop() == 0
    finally:
        server.ensure_gone()


def test_f42_an_address_that_is_none_is_refused_by_serve_and_check_alike(tmp_path: Path):
    for host in ("no.such.host.invalid", "fe80::1%nothing"):
        port, database = free_port(), tmp_path / "reservations.db"
        found = [
            run_serve(database, "--host", host, *more, port=port) for more in ((), ("--check",))
        ]
        assert [result.returncode for result in found] == [4, 4]
        assert found[0].stderr == found[1].stderr
        assert f"cannot listen on {host}:" in found[0].stderr
        assert "Traceback" not in found[0].stderr


def test_an_answer_is_not_held_back_until_its_first_packet_is_confirmed(server: Server):
    with connections(server.port, 1) as (connection,):
        began = time.monotonic()
        for _ in range(50):  # 40 ms each, if they were
            connection.sendall(request_head("GET", "/healthz"))
            while not connection.recv(65_536).endswith(b'"}'):
                pass
        assert time.monotonic() - began < 50 * 0.04


def test_f42_localhost_is_each_of_its_addresses_that_this_machine_has():
    port = free_port()
    ((*sockets,),) = listen("localhost", port, 1)
    try:
        families = {listener.family for listener in sockets}
        assert socket.AF_INET in families
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    finally:
        for listener in sockets:
            listener.close()


def seen_url(server: Server, path: str) -> Any:
    answer = exchange(server.port, request_head("GET", path, "Connection: close"))
    return answer.partition(b"\r\n\r\n")[2].decode()


def test_f48_the_objects_door_sees_what_was_asked_for(tmp_path: Path):
    (tmp_path / "file.py").write_text(
        "from workers import Response, WorkerEntrypoint\n"
        "class Default(WorkerEntrypoint):\n"
        "    def fetch(self, request):\n"
        "        return Response(request.url)\n"
    )
    server = Server(tmp_path, serves=("worker", str(tmp_path / "file.py")))
    try:
        server.start(wait=False)
        wait_for(lambda: "serving on" in server.out.read_text(), 10)
        for path in ("/a%2Fb", "/%FF", "/%FE", "/%2e%2e/b", "/a%20b?c=%20d", "/a/../b"):
            assert seen_url(server, path) == f"http://localhost{path}"
        assert server.stop() == 0
    finally:
        server.ensure_gone()
