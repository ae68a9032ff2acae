"""While another process has the log's lock, writers wait, and nobody else does."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.crash.staging import now_ms
from tests.support.clients import connections, read_all, request_head
from tests.support.database import locked
from tests.support.server import Server

pytestmark = pytest.mark.real_time

WRITERS = 80  # more than there are threads for requests, or connections for reading
LOCKED_SECONDS = 2.5
HEALTH_SECONDS = 0.5


def hold_request(number: int) -> bytes:
    return _request("POST", f"/reservations/{_name(number)}", {"ttlSeconds": 600})


def event_request(number: int) -> bytes:
    event = {"runAt": now_ms() + 3_600_000, "payload": number}
    return _request("PUT", f"/schedules/{_name(number)}/events/report", event)


def is_held(server: Server, number: int) -> bool:
    return bool(server.state(_name(number))["status"] == "held")


def is_scheduled(server: Server, number: int) -> bool:
    return server.get(f"/schedules/{_name(number)}/events/report").status == 200


def _name(number: int) -> str:
    return f"writer-{number}"


def _request(method: str, path: str, body: dict[str, int]) -> bytes:
    text = json.dumps(body).encode()
    return request_head(method, path, f"Content-Length: {len(text)}", "Connection: close") + text


@pytest.mark.parametrize(
    ("request_of", "is_there"),
    [(event_request, is_scheduled), (hold_request, is_held)],
    ids=["PUT schedules", "POST reservations"],
)
def test_80_writers_that_wait_for_the_lock_keep_healthz_waiting_for_nothing(
    make_server: Callable[..., Server],
    request_of: Callable[[int], bytes],
    is_there: Callable[[Server, int], bool],
) -> None:
    server = make_server().start()
    with ExitStack() as stack:
        with locked(server.database):
            writers = stack.enter_context(connections(server.port, WRITERS))
            for number, writer in enumerate(writers):
                writer.sendall(request_of(number))
            waits = _waits_for_health(server, LOCKED_SECONDS)
            assert _answered(writers) == []
        statuses = [_status(read_all(writer)) for writer in writers]
    assert max(waits) < HEALTH_SECONDS, waits
    assert set(statuses) <= {201, 503}
    assert [is_there(server, number) for number in range(WRITERS)] == [s == 201 for s in statuses]
    assert 201 in statuses


def _waits_for_health(server: Server, seconds: float) -> list[float]:
    waits = []
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        assert server.get("/healthz").status == 200
        waits.append(time.monotonic() - began)
        time.sleep(0.05)
    return waits


def _answered(writers: list[socket.socket]) -> list[int]:
    """The status of each who has an answer that is no 503: nobody can have written."""
    found = []
    for writer in writers:
        writer.setblocking(False)
        try:
            status = _status(writer.recv(65536, socket.MSG_PEEK))
            found += [status] if status != 503 else []
        except BlockingIOError:
            pass
        writer.settimeout(20)
    return found


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])
