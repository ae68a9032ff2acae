"""What many open holds cost: memory, the start, the disk, and the pace of everything."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.data import fill
from benchmarks.figures import Bar, Figure
from benchmarks.load import wrk
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import Ours, ours, resident_mb, scratch
from infrastructure.alarm_commands import ClaimDueAlarms
from infrastructure.application import ReservationApplication
from tests.support.server import wait_for

FAR_MS = 3_000_000
PASSES = 200
LOAD_SECONDS = 3
SETTLE_SECONDS = 2


def open_holds(sizes: tuple[int, ...]) -> Iterator[Figure]:
    """For each number of open holds: memory, start, disk; and how the pace changes."""
    growth: dict[str, Figure] = {
        key: Figure(f"{what} at {', '.join(f'{size:,}' for size in sizes)} open holds", unit)
        for key, what, unit in (
            ("creates", "creates", "1/s"),
            ("reads", "reads at random", "1/s"),
            ("pass", "a pass over the alarms", "ms"),
        )
    }
    empty_mb = _memory_of_an_empty_server()
    for size in sizes:
        with scratch() as folder:
            due_ms = int(time.time() * 1000) + FAR_MS
            path = fill(folder, size, lambda i, due=due_ms: due + i)
            if size == sizes[-1]:
                yield from _start_and_memory(folder, path, size, empty_mb)
            for key, value in _pace(folder, path, size).items():
                growth[key].ours.append(value)
    for figure in growth.values():
        worst = max(figure.ours) / min(figure.ours) - 1
        figure.note = "; ".join(f"{value:,.4g}" for value in figure.ours) + f" ({worst:.0%})"
        yield figure


def _memory_of_an_empty_server() -> float:
    with ours() as server:
        time.sleep(SETTLE_SECONDS)
        return resident_mb(server.worker_pid)


def _start_and_memory(folder: Path, path: Path, size: int, empty_mb: float) -> Iterator[Figure]:
    yield Figure("disk per open hold", "bytes", [path.stat().st_size / size])
    fill(folder, 1, lambda i: int(time.time() * 1000) - 1_000, tag="overdue")
    started = time.time()
    with ours(folder=folder) as server:
        ready = time.time()
        line = wait_for(server.alarm_lines, 10, 0.005)[0]
        first_ms = line["scheduledTime"] + line["latenessMs"]
        time.sleep(SETTLE_SECONDS)
        used_mb = resident_mb(server.worker_pid)
    bars = Bar(1.5, None, "ours", True), Bar(0.5, None, "ours", True)
    yield Figure(f"start with {size:,} open holds, to ready", "s", [ready - started], bar=bars[0])
    yield Figure("  first overdue alarm, after ready", "s", [first_ms / 1000 - ready], bar=bars[1])
    bar = Bar(200, None, "ours", True)
    yield Figure(f"memory with {size:,} open holds", "MB", [used_mb], bar=bar)
    per_hold = max(used_mb - empty_mb, 0) * 1024 * 1024 / size
    bar = Bar(150, None, "ours", True)
    note = f"an empty server has {empty_mb:.0f} MB"
    yield Figure("  per open hold", "bytes", [per_hold], bar=bar, note=note)


def _pace(folder: Path, path: Path, size: int) -> dict[str, float]:
    with ours(folder=folder) as server:
        creates = wrk("creates", server.port, LOAD_SECONDS, tag=f"n{random.randrange(10**6)}")
        reads = wrk("reads", server.port, LOAD_SECONDS, tag="h", count=size)
        _refuse_wrong(server, creates.unexpected + reads.unexpected)
    return {
        "creates": creates.per_second,
        "reads": reads.per_second,
        "pass": _pass_ms(path),
    }


def _refuse_wrong(server: Ours, unexpected: int) -> None:
    if unexpected:
        raise WrongAnswer(f"{unexpected} answers were not as expected: {server}")


def _pass_ms(path: Path) -> float:
    """What the alarm clock's look costs when nothing is due, in ms."""
    application = ReservationApplication(path)
    application.start(alarms=False)
    times = []
    for _ in range(PASSES):
        began = time.perf_counter()
        application.writer.execute(ClaimDueAlarms(500, 5_000))
        times.append(time.perf_counter() - began)
    application.stop()
    return median(times) * 1000


def replay_tools(holds: int) -> Iterator[Figure]:
    """verify, rebuild, export and import of a log with twice as many events."""
    events = 2 * holds
    with scratch() as folder:
        path = fill(folder, holds, lambda i: int(time.time() * 1000) + FAR_MS + i)
        exported, copy = folder / "log.jsonl", folder / "copy.db"
        for name, bar, database, *arguments in (
            ("verify", Bar(100_000, 200_000, "ours"), path, "verify"),
            ("rebuild", Bar(60_000, 200_000, "ours"), path, "rebuild"),
            ("export", None, path, "export", str(exported)),
            ("import, with rebuild and verify", None, copy, "import", str(exported)),
        ):
            seconds, peak_mb = _timed_command("log", *arguments, "--database", str(database))
            note = f"{events:,} events in {seconds:.1f} s, {peak_mb:.0f} MB at most"
            yield Figure(f"log {name}", "events/s", [events / seconds], bar=bar, note=note)


def _timed_command(*arguments: str) -> tuple[float, float]:
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "api", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise WrongAnswer(f"{' '.join(arguments)} exited with {status}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024
