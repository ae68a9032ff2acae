"""The id of a request, in answers, problem documents and log lines; and lines as JSON."""

import json
import logging
from collections.abc import Iterator

import pytest

from reservation_expiry.api.logs import JsonLines, TextLines
from reservation_expiry.infrastructure.machine.redaction import without_secrets
from tests.support.clients import exchange, request_head
from tests.support.server import Answer, Server

MADE = "[0-9a-f]{16}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("ids"), "--log-format", "json").start()
    yield server
    server.ensure_gone()


def ask(server: Server, method: str, path: str, *headers: str, body: bytes = b"") -> Answer:
    head = request_head(method, path, *headers, f"Content-Length: {len(body)}", "Connection: close")
    head, _, content = exchange(server.port, head + body).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), found, content)


def lines_of(server: Server, id: str) -> list[dict]:
    lines = [json.loads(line) for line in server.err.read_text().splitlines()]
    return [line for line in lines if line.get("requestId") == id]


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/reservations/seat-1"),
        ("GET", "/healthz"),
        ("GET", "/reservations"),
        ("GET", "/none"),
        ("PUT", "/schedules/a/events/b"),
    ],
)
def test_an_id_that_was_sent_comes_back(server: Server, method: str, path: str) -> None:
    answer = ask(server, method, path, "X-Request-Id: lb-42/7")
    assert answer.headers["x-request-id"] == "lb-42/7"
    if answer.headers["content-type"] == "application/problem+json":
        assert answer.json()["requestId"] == "lb-42/7"


@pytest.mark.real_time
@pytest.mark.parametrize("sent", ["a b", "", "é", '"quoted"', "x" * 129, "{}"])
def test_an_id_that_cannot_be_logged_as_it_is_is_not_taken(server: Server, sent: str) -> None:
    answer = ask(server, "GET", "/events?after=x", f"X-Request-Id: {sent}")
    assert answer.json()["requestId"] == answer.headers["x-request-id"]
    assert answer.headers["x-request-id"] != sent
    assert len(answer.headers["x-request-id"]) == 16


@pytest.mark.real_time
def test_the_contracts_answers_are_as_they_were(server: Server) -> None:
    answer = ask(server, "GET", "/reservations/seat-1")
    assert set(answer.headers) == {"date", "content-type", "content-length", "connection"}


@pytest.mark.real_time
def test_each_refusal_has_an_id_of_its_own(server: Server) -> None:
    answers = [ask(server, "GET", "/events?after=x") for _ in range(3)]
    assert len({answer.json()["requestId"] for answer in answers}) == 3


@pytest.mark.real_time
def test_what_is_logged_of_a_request_names_it(server: Server) -> None:
    replay = "/reservations/seat-1/replay-alarm"
    answer = ask(server, "POST", replay, "X-Request-Id: r-1", body=b'{"now":1700000000}')
    assert answer.status == 200
    (line,) = lines_of(server, "r-1")
    assert "were seconds meant?" in line["message"]
    assert line["level"] == "warning"


@pytest.mark.real_time
def test_all_output_is_json_then(server: Server) -> None:
    for file in (server.out, server.err):
        assert all(json.loads(line) for line in file.read_text().splitlines())
    first = json.loads(server.out.read_text().splitlines()[0])
    assert (first["event"], first["url"]) == ("serving", server.url)


def record(message: str) -> logging.LogRecord:
    try:
        raise ValueError("postgresql://app:s3cret@db/app refused")
    except ValueError as error:
        exc_info = (type(error), error, error.__traceback__)
    found = logging.LogRecord("a", logging.ERROR, __file__, 1, message, None, exc_info)
    without_secrets(found)
    return found


@pytest.mark.parametrize("lines", [JsonLines(), TextLines()])
def test_no_line_has_a_secret(lines: logging.Formatter) -> None:
    token = "rxt_abcdefgh_" + "s3cret" * 5
    line = lines.format(record(f"{token} came from http://a:s3cret@b"))
    assert "s3cret" not in line
    assert "ValueError" in line


def test_a_json_line_has_what_a_machine_asks_for() -> None:
    line = json.loads(JsonLines().format(record("it failed")))
    assert line["time"].endswith("Z")
    assert {"level": "error", "logger": "a", "message": "it failed"}.items() <= line.items()
    assert "requestId" not in line
