"""How alarms behave: many overdue at once, spread out, all in one instant."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.data import database_of, fill
from benchmarks.figures import Bar, Figure
from benchmarks.load import MissingTool, run_load
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import Ours, Workerd, ours, scratch, workerd
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.database import sql
from tests.support.server import wait_for

PATIENCE_SECONDS = 120
LEAD_SECONDS = 4  # from making holds that will be due to their being due
PEER_TTL_SECONDS = 5
CREATES_PER_SECOND = 500

Place = Callable[[Path], Address]
"""Where the database of a measurement is, which has that folder for itself."""


def drains(rounds: int, sizes: tuple[int, ...], peer_seconds: float) -> Iterator[Figure]:
    """Overdue holds at the start, everything on, until the last has expired.

    The peers are measured beside the first size; the others are held against that.
    """
    peer: list[float] = []
    scheduler: list[float] = []
    for size in sizes:
        first = size == sizes[0]
        figure = Figure(f"drain of {size:,} overdue", "1/s", bar=Bar(6, 12))
        stock = Figure("  beside stock APScheduler", "1/s", bar=Bar(14 if first else 12, 20))
        steady = Figure("  from the first to the last", "1/s")
        for _ in range(rounds if first else 1):
            per_second, from_first = drain_ours(size)
            figure.ours.append(per_second)
            stock.ours.append(per_second)
            steady.ours.append(from_first)
            if first:
                _drain_peers(figure, stock, peer_seconds, size)
        if first:
            peer, scheduler = figure.peer, stock.peer
        else:
            _hold_against(figure, peer, Workerd.name, sizes[0])
            _hold_against(stock, scheduler, "APScheduler", sizes[0])
        yield from (figure, stock, steady)


def _hold_against(figure: Figure, peer: list[float], name: str, size: int) -> None:
    figure.peer = [median(peer)] if peer else []
    figure.peer_name, figure.note = name, f"the peer's rate beside {size:,}"


def _drain_peers(figure: Figure, stock: Figure, seconds: float, size: int) -> None:
    figure.peer_name, stock.peer_name = Workerd.name, "APScheduler"
    try:
        per_second, count = _drain_workerd(seconds)
        figure.peer.append(per_second)
        figure.note = f"the peer's: {count:,} holds, what it made in {seconds:g} s"
    except MissingTool as missing:
        figure.note = f"peer missing: {missing}"
    with scratch() as folder:
        command = [sys.executable, "-m", "benchmarks.stock_scheduler", folder / "jobs.db"]
        done = subprocess.run([*command, str(size)], capture_output=True, text=True, check=True)
        stock.peer.append(float(done.stdout))


def drain_ours(size: int, place: Place = database_of, nodes: int = 1) -> tuple[float, float]:
    """Expired per second from the process's start to the last, and from the first."""
    with scratch() as folder:
        return drain(fill_overdue(place(folder), size), size, nodes)


def fill_overdue(place: Address, size: int) -> Address:
    now_ms = int(time.time() * 1000)
    return fill(place, size, lambda i: now_ms - 60_000 + i % 1_000)


def drain(
    database: Address, size: int, nodes: int = 1, command: list[str] | None = None
) -> tuple[float, float]:
    """Has `nodes` servers, started by `command`, end all holds of a database."""
    with ExitStack() as stack:
        started = time.time()
        for _ in range(nodes):
            stack.enter_context(ours(database=database, command=command))
        wait_for(lambda: _open_alarms(database) == 0, PATIENCE_SECONDS)
        first_ms, last_ms, count = _expiries(database)
        if count != size:
            raise WrongAnswer(f"{count} expired where {size} were due")
        return size / (last_ms / 1000 - started), size / max(last_ms - first_ms, 1) * 1000


def _drain_workerd(seconds: float) -> tuple[float, int]:
    """Makes what it can in so many seconds, restarts it when all are due."""
    ttl = round(seconds) + PEER_TTL_SECONDS
    with scratch() as folder:
        with workerd(folder) as server:
            load = run_load("creates", server.port, seconds, tag="due", ttl=ttl)
        count = round(load.per_second * seconds)
        time.sleep(ttl)
        (folder / "out.txt").write_text("")
        started = time.time()
        with workerd(folder) as server:
            wait_for(lambda: len(_lines(server.out)) >= count * 0.99, PATIENCE_SECONDS, 0.05)
            time.sleep(1)
            at = [line["at"] for line in _lines(server.out)]
        return len(at) / (max(at) / 1000 - started), len(at)


def lateness(spread_over: int, bursts: tuple[int, ...]) -> Iterator[Figure]:
    """How late alarms are: spread out, in one instant, and beside other load."""
    count = spread_over * 10
    late = lateness_ours(count, lambda due, i: due + i * spread_over * 1000 // count)
    bars = (Bar(4, 2, "ours", low=True), Bar(2, 1, low=True))
    peer = _lateness_workerd(count, spread_over)
    yield from lateness_figures(f"lateness, {count} over {spread_over} s", late, bars, peer)
    for burst in bursts:
        bars = (None, Bar(150, 60, "ours", low=True)) if burst <= 500 else (None, None)
        late = lateness_ours(burst, lambda due, i: due)
        yield from lateness_figures(f"lateness, {burst:,} in one instant", late, bars)
        if burst > 500:
            bar = Bar(2_000, 1_000, "ours", low=True)
            yield Figure(f"  the last of {burst:,}", "ms", [max(late)], bar=bar)
            reads: list[float] = []
            late = lateness_ours(burst, lambda due, i: due, reads)
            yield Figure("  reads' p99 meanwhile", "ms", reads, bar=Bar(80, None, "ours", low=True))
    late = lateness_ours(count, lambda due, i: due + i * spread_over * 1000 // count, busy=True)
    yield from lateness_figures(
        f"lateness, {count} over {spread_over} s beside {CREATES_PER_SECOND} creates/s",
        late,
        (None, None),
    )


def lateness_figures(
    what: str,
    late: list[float],
    bars: tuple[Bar | None, Bar | None],
    peer: list[float] | None = None,
) -> Iterator[Figure]:
    if min(late) < 0:
        raise WrongAnswer(f"an alarm rang {-min(late)} ms early")
    for word, share, bar in (("p50", 0.5, bars[0]), ("p99", 0.99, bars[1]), ("max", 1.0, None)):
        theirs = [percentile(peer, share)] if peer else []
        name = Workerd.name if peer else ""
        yield Figure(f"{what}, {word}", "ms", [percentile(late, share)], theirs, name, bar)


def lateness_ours(
    count: int,
    due_at_ms: Callable[[int, int], int],
    reads_p99: list[float] | None = None,
    busy: bool = False,
    place: Place = database_of,
) -> list[float]:
    """How late each of `count` alarms is, in ms, that are due at `due_at_ms(start, i)`."""
    with scratch() as folder, ours(database=place(folder)) as server:
        due_ms = int(time.time() * 1000) + LEAD_SECONDS * 1000 + count // 20
        database = fill(server.database, count, lambda i: due_at_ms(due_ms, i))
        if time.time() * 1000 > due_ms:
            raise WrongAnswer("the holds were due before they were made")
        with _creating(server) if busy else _idle():
            if reads_p99 is not None:
                seconds = (due_ms / 1000 - time.time()) + 2
                reads_p99.append(run_load("reads", server.port, seconds, name="h-1").p99_ms)
            wait_for(lambda: len(_late(server)) >= count, PATIENCE_SECONDS, 0.25)
        if not busy and _open_alarms(database):
            raise WrongAnswer("alarms are left over")
        return _late(server)


def _late(server: Ours) -> list[float]:
    return [line["latenessMs"] for line in _lines(server.out) if line["outcome"] == "ok"]


def _lateness_workerd(count: int, seconds: int) -> list[float] | None:
    try:
        with workerd() as server:
            for number in range(count):
                _post(server.port, f"late-{number}", PEER_TTL_SECONDS)
                time.sleep(seconds / count)
            wait_for(lambda: len(_lines(server.out)) >= count, PATIENCE_SECONDS)
            return [line["latenessMs"] for line in _lines(server.out)]
    except MissingTool:
        return None


@contextmanager
def _idle() -> Iterator[None]:
    yield


@contextmanager
def _creating(server: Ours) -> Iterator[None]:
    """CREATES_PER_SECOND holds, evenly, from four threads, until the block ends."""
    stop, threads = threading.Event(), 4

    def create(worker: int) -> None:
        started, number = time.perf_counter(), 0
        while not stop.is_set():
            _post(server.port, f"busy-{worker}-{number}", 3_600)
            number += 1
            ahead = started + number * threads / CREATES_PER_SECOND - time.perf_counter()
            time.sleep(max(ahead, 0))

    workers = [threading.Thread(target=create, args=(worker,)) for worker in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def _post(port: int, name: str, ttl_seconds: int) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/reservations/{name}",
        json.dumps({"ttlSeconds": ttl_seconds}).encode(),
        method="POST",
    )
    with urllib.request.urlopen(request) as answer:
        if answer.status != 201:
            raise WrongAnswer(f"{answer.status} to a hold")


def _lines(out: Path) -> list[dict]:
    lines = out.read_text().splitlines()
    return [json.loads(line) for line in lines if '"reservation-alarm"' in line]


def _open_alarms(database: Address) -> int:
    return sql(database, "SELECT count(*) FROM alarms")[0][0]


def _expiries(database: Address) -> tuple[int, int, int]:
    return sql(
        database,
        "SELECT min(recorded_at_ms), max(recorded_at_ms), count(*) FROM events "
        "WHERE topic = 'reservation.Expired'",
    )[0]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return (
        ordered[min(int(share * len(ordered)), len(ordered) - 1)]
        if share != 0.5
        else median(ordered)
    )
