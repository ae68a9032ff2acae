"""What it costs to be seen: scrapes, pages of the dashboard, and a thousand streams of events."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from statistics import quantiles

from benchmarks.data import fill
from benchmarks.figures import Bar, Figure
from benchmarks.load import run_load
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import Ours, ours, scratch
from reservation_expiry.infrastructure.application import CENSUS_EVERY_SECONDS

FAR_MS = 3_000_000
HOLDS_OF_ONE = 500  # each is two events
HOLDS_PER_SECOND = 250  # 500 events
LEAD_SECONDS = 2.0


def pages(size: int, rounds: int) -> Iterator[Figure]:
    """Beside so many open holds: what whoever looks waits for."""
    figures = {
        "a scrape that counts": Figure(f"scrape that counts, {size:,} open holds", "ms"),
        "a scrape": Figure("  one that need not", "ms"),
        "overview": Figure("overview of the dashboard", "ms"),
        "one": Figure(f"page of a reservation with {2 * HOLDS_OF_ONE:,} events", "ms"),
    }
    bars = (400, 50, 200, 150)
    with scratch() as folder:
        due_ms = int(time.time() * 1000) + FAR_MS
        fill(folder, size, lambda i: due_ms + i)
        with ours(folder=folder) as server:
            for _ in range(HOLDS_OF_ONE):
                server.hold("often", 3_600)
            for _ in range(rounds):
                time.sleep(CENSUS_EVERY_SECONDS + 0.1)
                figures["a scrape that counts"].ours.append(_asked(server, "/metrics"))
                figures["a scrape"].ours.append(_asked(server, "/metrics"))
                time.sleep(CENSUS_EVERY_SECONDS + 0.1)
                figures["overview"].ours.append(_asked(server, "/dashboard"))
                page = f"/dashboard/reservations/often?version={HOLDS_OF_ONE}"
                figures["one"].ours.append(_asked(server, page))
    for figure, bar in zip(figures.values(), bars, strict=True):
        figure.bar = Bar(bar, None, "ours", True)
        yield figure


def _asked(server: Ours, path: str) -> float:
    """How long the answer took, in ms."""
    began = time.perf_counter()
    answer = server.request("GET", path)
    took = (time.perf_counter() - began) * 1000
    if answer.status != 200:
        raise WrongAnswer(f"{path}: {answer.status}")
    return took


def streams(count: int, seconds: float) -> Iterator[Figure]:
    """So many, while holds come at a steady pace, and as fast as they can."""
    late = Figure(f"{count:,} streams, 500 events/s: from commit to reader, p99", "ms")
    late.bar = Bar(500, None, "ours", True)
    steady = Figure("  holds at that pace, of those without streams", "1/s")
    steady.peer_name, steady.bar = "no streams", Bar(0.8)
    most = Figure("  holds as fast as they can, of those without streams", "1/s")
    most.peer_name = "no streams"
    with ours() as server:
        steady.peer.append(_holds_at_a_pace(server, seconds, "alone"))
        most.peer.append(run_load("creates", server.port, seconds, tag="alone").per_second)
    with ours() as server:
        with _readers(server, count, seconds + LEAD_SECONDS) as found:
            steady.ours.append(_holds_at_a_pace(server, seconds, "seen"))
        late.ours.append(quantiles(found["lateMs"], n=100)[98])
        late.note = f"{found['read'] / count:,.0f} events each, {found['cut']} cut off"
        with _readers(server, count, seconds + LEAD_SECONDS) as found:
            most.ours.append(run_load("creates", server.port, seconds, tag="seen").per_second)
        most.note = f"{found['cut']} of the streams cut off, too far behind"
    yield from (late, steady, most)


@contextmanager
def _readers(server: Ours, count: int, seconds: float) -> Iterator[dict]:
    """Open while the block runs; filled in with what they found when it has ended."""
    command = [sys.executable, "-m", "benchmarks.stream_clients"]
    words = [str(server.port), str(count), str(seconds)]
    found: dict = {}
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "open\n":
                raise WrongAnswer("the streams could not be opened")
            yield found
            found |= json.loads(process.stdout.read())
        finally:
            process.kill()


def _holds_at_a_pace(server: Ours, seconds: float, tag: str) -> float:
    """How many a second there were, of HOLDS_PER_SECOND that are asked for, over a few
    connections."""
    done, lock, ends = 0, threading.Lock(), time.perf_counter() + seconds
    clients = 5

    def client(number: int) -> None:
        nonlocal done
        connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
        due, held = time.perf_counter(), 0
        while due < ends:
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.request(
                "POST", f"/reservations/{tag}-{number}-{held}", b'{"ttlSeconds":600}'
            )
            connection.getresponse().read()
            held += time.perf_counter() < ends
            due += clients / HOLDS_PER_SECOND
        connection.close()
        with lock:
            done += held

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done / seconds
