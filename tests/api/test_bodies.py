"""Bodies and ids that are too long, of the wrong kind or cut off (F21 in the list of faults).

What goes over a raw socket goes to a real server, which must answer and stay up.
"""

import io
import json
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from werkzeug.exceptions import RequestEntityTooLarge

from reservation_expiry.api.bodies import READ_BYTES, read_body
from reservation_expiry.infrastructure.settings import BODY_LIMIT_BYTES
from tests.contract.replayer import Answer, address_of, chunked, exchange
from tests.support.server import Server

TWENTY_MEGABYTES = b'{"ttlSeconds":5,"x":"' + b"a" * 20_000_000 + b'"}'
HOLD = b'{"ttlSeconds":600}'

SERVICE = {"service": "reservation-expiry"}
BAD_ID = {"error": "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."}
BAD_BODY = {"error": "Send a JSON request body."}
BAD_TTL = {"error": "ttlSeconds must be an integer from 5 through 3600."}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("bodies"))
    try:
        yield server.start()
    finally:
        server.ensure_gone()


@pytest.fixture
def unharmed(server: Server) -> Iterator[None]:
    """Checks afterwards that the same processes serve on, and hold what they held before."""
    pids, held = server.worker_pids(), server.get("/reservations").json()
    yield
    assert server.worker_pids() == pids
    assert server.get("/readyz").status == 200
    assert server.get("/reservations").json() == held


def post(server: Server, path: bytes, body: bytes, *headers: bytes) -> Answer:
    return exchange(address_of(server.url), head(path, *headers) + body, "POST")


def post_declared(server: Server, path: bytes, body: bytes) -> Answer:
    return post(server, path, body, b"Content-Length: %d" % len(body))


def post_chunked(server: Server, path: bytes, body: bytes) -> Answer:
    return post(server, path, chunked(body, READ_BYTES), b"Transfer-Encoding: chunked")


def head(path: bytes, *headers: bytes) -> bytes:
    lines = (b"POST " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers)
    return b"\r\n".join([*lines, b"", b""])


@pytest.mark.real_time
@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("send", [post_declared, post_chunked])
@pytest.mark.parametrize(
    "path",
    [b"/reservations/abc", b"/x/../reservations/abc", b"/reservations/abc/replay-alarm"],
    ids=["shortcut", "flask", "replay"],
)
def test_f21_a_body_of_20_mb_is_too_large(server, send, path):
    answer = send(server, path, TWENTY_MEGABYTES)
    assert (answer.status, answer.content_type) == (413, "application/problem+json")
    problem = json.loads(answer.body)
    assert problem["code"] == "body-too-large"
    assert str(BODY_LIMIT_BYTES) in problem["detail"]


@pytest.mark.real_time
@pytest.mark.usefixtures("unharmed")
def test_f21_a_body_declared_too_large_is_refused_before_it_is_sent(server):
    answer = post(server, b"/reservations/abc", b"", b"Content-Length: 20000000")
    assert answer.status == 413


@pytest.mark.real_time
@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize(
    "name",
    [
        b"a",
        b"a" * 41,
        b"ABC",
        b"abC",
        b"%2F",
        b"ab%2Fcd",
        b"abc%00",
        b"%00abc",
        b"a%F0%9F%98%80b",
        "a😀b".encode(),
        b"abc%0A",
        b"abc%0D%0A",
    ],
)
def test_f21_an_odd_id_is_a_bad_id(server, name):
    answer = post_declared(server, b"/reservations/" + name, HOLD)
    assert (answer.status, answer.content_type) == (400, "application/json")
    assert json.loads(answer.body) == BAD_ID


@pytest.mark.real_time
@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("name", [b"..", b"%2e%2e", b".%2E"])
def test_f21_two_dots_are_no_id_but_lead_to_the_root(server, name):
    answer = post_declared(server, b"/reservations/" + name, HOLD)
    assert (answer.status, json.loads(answer.body)) == (200, SERVICE)


@pytest.mark.real_time
@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("name", [b"a\0b", b"abc\n", b"a b"])
def test_f21_what_cannot_stand_in_a_request_line_is_refused_by_the_http_server(server, name):
    assert post_declared(server, b"/reservations/" + name, HOLD).status == 400


@pytest.mark.real_time
@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("send", [post_declared, post_chunked])
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b'{"ttlSeconds":true}', BAD_TTL),
        (b'{"ttlSeconds":5.5}', BAD_TTL),
        (b'{"ttlSeconds":"5"}', BAD_TTL),
        (b'{"ttlSeconds":1e9}', BAD_TTL),
        (b'{"ttlSeconds":NaN}', BAD_BODY),
        (b"{}", BAD_TTL),
        (b"", BAD_BODY),
    ],
)
def test_f21_a_ttl_that_is_not_a_whole_number_of_seconds_in_range_is_refused(
    server, send, body, refusal
):
    answer = send(server, b"/reservations/abc", body)
    assert (answer.status, answer.content_type) == (400, "application/json")
    assert json.loads(answer.body) == refusal


@pytest.mark.real_time
def test_a_body_that_ends_before_its_declared_length_holds_nothing(server):
    """A chunked body without its last chunk cannot be told from a whole one: the server
    hands it over as if it were (docs/guarantees.md)."""
    with socket.create_connection(address_of(server.url), 5) as connection:
        connection.sendall(head(b"/reservations/cut-off", b"Content-Length: 100") + HOLD)
        connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            connection.recv(1)
    assert server.state("cut-off")["status"] == "missing"


class Sent(io.BytesIO):
    """A body on its way, which counts what was read of it."""

    def __init__(self, length: int) -> None:
        super().__init__(b"x" * length)

    def environ(self, declared: int | None = None) -> dict[str, object]:
        length = {} if declared is None else {"CONTENT_LENGTH": str(declared)}
        return {"wsgi.input": self, **length}


@pytest.mark.parametrize("length", [0, 1, READ_BYTES, READ_BYTES + 1, BODY_LIMIT_BYTES - 1])
def test_a_body_below_the_limit_is_read_whole(length):
    assert len(read_body(Sent(length).environ(declared=length))) == length
    assert len(read_body(Sent(length).environ())) == length


def test_a_body_of_exactly_the_limit_is_read_whole():
    sent = Sent(BODY_LIMIT_BYTES)
    assert len(read_body(sent.environ(declared=BODY_LIMIT_BYTES))) == BODY_LIMIT_BYTES
    assert len(read_body(Sent(BODY_LIMIT_BYTES).environ())) == BODY_LIMIT_BYTES


def test_a_byte_over_the_limit_is_refused_with_nothing_read_if_it_was_declared():
    sent = Sent(BODY_LIMIT_BYTES + 1)
    with pytest.raises(RequestEntityTooLarge):
        read_body(sent.environ(declared=BODY_LIMIT_BYTES + 1))
    assert sent.tell() == 0


def test_a_body_of_no_declared_length_is_read_no_further_than_it_takes_to_refuse_it():
    sent = Sent(2 * BODY_LIMIT_BYTES)
    with pytest.raises(RequestEntityTooLarge):
        read_body(sent.environ())
    assert BODY_LIMIT_BYTES < sent.tell() <= BODY_LIMIT_BYTES + READ_BYTES
