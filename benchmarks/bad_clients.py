"""What a thousand clients that behave badly cost the others: the others' p99, kind by kind."""

import http.client
import time
from collections.abc import Iterator
from itertools import count
from statistics import quantiles

from benchmarks.figures import Bar, Figure
from benchmarks.servers import Ours, ours, resident_mb
from tests.support.clients import connections, request_head

P99_MS = Bar(200, of="ours", low=True)
LARGE = request_head("POST", "/reservations/slow-1", "Content-Length: 1000000") + b"x" * 65_000
KINDS = {
    "nobody": None,
    "that say nothing": b"",
    "with half a head": b"POST /reservations/slow-1 HTTP/1.1\r\nHo",
    "with half a body": request_head("POST", "/reservations/slow-1", "Content-Length: 99") + b"{",
    "with half a chunk": (
        request_head("POST", "/reservations/slow-1", "Transfer-Encoding: chunked") + b"5\r\n{"
    ),
    "that wait for 100": request_head(
        "POST", "/reservations/slow-1", "Content-Length: 99", "Expect: 100-continue"
    ),
    "with half a schedule": (
        request_head("PUT", "/schedules/a/events/b", "Content-Length: 99") + b"{"
    ),
    "with a large body": LARGE,
    "of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "that read nothing": request_head("GET", "/events?limit=1000"),
}

_names = count(1)


def bad_clients(how_many: int, seconds: float) -> Iterator[Figure]:
    with ours() as server:
        for _ in range(2_000):
            server.hold(f"log-{next(_names)}", 3600)
        for kind, first in KINDS.items():
            yield _beside(server, kind, first, how_many, seconds)
        yield Figure("memory afterwards", "MB", [resident_mb(server.worker_pid)])


def _beside(server: Ours, kind: str, first: bytes | None, how_many: int, seconds: float) -> Figure:
    with connections(server.port, 0 if first is None else how_many, first or b""):
        times = [1000 * t for t in _ask(server.port, seconds)]
    p99 = quantiles(times, n=100)[-1]
    label = "beside nobody" if first is None else f"beside {how_many} {kind}"
    return Figure(f"health, reads and holds {label}: p99", "ms", [p99], bar=P99_MS)


def _ask(port: int, seconds: float) -> Iterator[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    asks = (
        lambda: ("GET", "/healthz", None),
        lambda: ("GET", "/readyz", None),
        lambda: ("GET", "/reservations/log-1", None),
        lambda: ("POST", f"/reservations/new-{next(_names)}", b'{"ttlSeconds":3600}'),
        lambda: ("GET", "/reservations?limit=1", None),
    )
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for ask in asks:
            began = time.perf_counter()
            connection.request(*ask())
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 201), answer.status
            yield time.perf_counter() - began
    connection.close()
