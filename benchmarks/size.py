"""What size costs: memory, the start, the disk, the pace, and the tools on a long log."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.data import fill, fill_log
from benchmarks.figures import Bar, Figure
from benchmarks.load import run_load
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import Ours, ours, resident_mb, scratch
from reservation_expiry.infrastructure.alarms.claims import ClaimDueAlarms
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.sqlite.database import Database
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork
from tests.support.server import wait_for

FAR_MS = 3_000_000
PASSES = 500
WARM_UP_PASSES = 50
LATE = 100
LATE_OVER_MS = 2_000
LATE_LEAD_MS = 1_500
SETTLE_SECONDS = 2


def open_holds(sizes: tuple[int, ...]) -> Iterator[Figure]:
    """For the most open holds: memory, start, disk."""
    empty_mb = _memory_of_an_empty_server()
    with scratch() as folder:
        due_ms = int(time.time() * 1000) + FAR_MS
        path = fill(folder, sizes[-1], lambda i: due_ms + i)
        yield from _start_and_memory(folder, path, sizes[-1], empty_mb)


def growth(
    rounds: int, seconds: float, sizes: tuple[int, ...], logs: tuple[int, ...]
) -> Iterator[Figure]:
    """How the pace changes with the number of open holds, and with the length of the log."""
    now_ms = int(time.time() * 1000)
    with ExitStack() as stack:
        databases = []
        for size in sizes:
            folder = stack.enter_context(scratch())
            databases.append((folder, size, fill(folder, size, lambda i: now_ms + FAR_MS + i)))
        yield from _paces(rounds, seconds, databases, "open holds", sizes)
    with ExitStack() as stack:
        databases = []
        for events in logs:
            folder = stack.enter_context(scratch())
            names = min(sizes[0], events // 2)
            databases.append((folder, names, fill_log(folder, events, names, now_ms)))
        yield from _paces(rounds, seconds, databases, "events in the log", logs)


def _paces(
    rounds: int,
    seconds: float,
    databases: list[tuple[Path, int, Path]],
    of: str,
    sizes: tuple[int, ...],
) -> Iterator[Figure]:
    """Medians of rounds that take the databases in turn, so that noise hits all alike."""
    found = [[_pace(seconds, *database) for database in databases] for _ in range(rounds)]
    for what, unit, bar in (
        ("creates", "1/s", Bar(0.25, None, "change", True)),
        ("reads at random", "1/s", Bar(0.25, None, "change", True)),
        ("a pass over the alarms", "ms", Bar(0.25, None, "change", True)),
        ("lateness p99 of 100 over 2 s", "ms", None),
    ):
        values = [median(r[i][what] for r in found) for i in range(len(databases))]
        figure = Figure(f"{what} at {_listed(sizes)} {of}", unit, values, bar=bar)
        figure.note = f"{'; '.join(f'{value:,.3g}' for value in values)} ({figure.change:.0%})"
        yield figure


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)


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


def _pace(seconds: float, folder: Path, names: int, path: Path) -> dict[str, float]:
    with ours(folder=folder) as server:
        tag = f"n{random.randrange(10**9)}"
        creates = run_load("creates", server.port, seconds, tag=tag)
        reads = run_load("reads", server.port, seconds, tag="h", count=names)
        _refuse_wrong(server, creates.unexpected + reads.unexpected)
        due_ms = int(time.time() * 1000) + LATE_LEAD_MS
        fill(folder, LATE, lambda i: due_ms + i * LATE_OVER_MS // LATE, tag=f"{tag}-late")
        wait_for(lambda: len(server.alarm_lines()) >= LATE, 30, 0.25)
        late = sorted(line["latenessMs"] for line in server.alarm_lines())
    return {
        "creates": creates.per_second,
        "reads at random": reads.per_second,
        "a pass over the alarms": _pass_ms(path),
        "lateness p99 of 100 over 2 s": late[int(0.99 * LATE)],
    }


def _refuse_wrong(server: Ours, unexpected: int) -> None:
    if unexpected:
        raise WrongAnswer(f"{unexpected} answers were not as expected: {server}")


def _pass_ms(path: Path) -> float:
    """What the alarm clock's look costs when nothing is due, in ms.

    Without the hand-over to the writer's thread and back, which costs as much again and
    depends on nothing but the scheduler's mood.
    """
    database = Database(path)
    session, mapper, times = SqliteSession(database), EventMapper(), []
    for _ in range(WARM_UP_PASSES + PASSES):
        began = time.perf_counter()
        session.begin()
        ClaimDueAlarms(500, 5_000).run(UnitOfWork(session, mapper, int(time.time() * 1000)))
        session.commit()
        times.append(time.perf_counter() - began)
    session.close()
    database.close()
    return median(times[WARM_UP_PASSES:]) * 1000


def replay_tools(holds: int) -> Iterator[Figure]:
    """verify, rebuild, export and import of a log with twice as many events."""
    events = 2 * holds
    with scratch() as folder:
        path = fill(folder, holds, lambda i: int(time.time() * 1000) + FAR_MS + i)
        imports = Bar(40_000, 100_000, "ours")
        exported, copy = folder / "log.jsonl", folder / "copy.db"
        for name, bar, database, *arguments in (
            ("verify", Bar(150_000, 250_000, "ours"), path, "verify"),
            ("rebuild", Bar(100_000, 150_000, "ours"), path, "rebuild"),
            ("export", None, path, "export", str(exported)),
            ("import, with rebuild and verify", imports, copy, "import", str(exported)),
        ):
            seconds, peak_mb = _timed_command("log", *arguments, "--database", str(database))
            note = f"{events:,} events in {seconds:.1f} s, {peak_mb:.0f} MB at most"
            yield Figure(f"log {name}", "events/s", [events / seconds], bar=bar, note=note)


def _timed_command(*arguments: str) -> tuple[float, float]:
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "reservation_expiry", *arguments], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # it knows nothing of that wait
    if status:
        raise WrongAnswer(f"{' '.join(arguments)} exited with {status}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024
