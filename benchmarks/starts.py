"""What a start costs: to the first alarm that is overdue, of the command line, in memory."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.data import fill
from benchmarks.figures import Bar, Figure
from benchmarks.objects import COUNTER, hosting
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import Ours, ours, resident_mb, scratch
from tests.support.clients import connections, request_head
from tests.support.database import sql
from tests.support.server import COMMAND, wait_for

FIRST_ALARM = Bar(400, 250, "ours", low=True)
COMMAND_MS = Bar(250, 150, "ours", low=True)
SETTLE_SECONDS = 2
WORKER = """
from workers import DurableObject, WorkerEntrypoint

class Default(WorkerEntrypoint):
    pass

class Counter(DurableObject):
    async def alarm(self):
        await self.ctx.storage.put("count", 1)
"""


def starts(rounds: int, idle_connections: int) -> Iterator[Figure]:
    reservation = Figure("from exec to the first overdue alarm", "ms", bar=FIRST_ALARM)
    of_object = Figure("  of an object", "ms", bar=FIRST_ALARM)
    hold = Figure("the command line: hold", "ms", bar=COMMAND_MS)
    show = Figure("  show", "ms", bar=COMMAND_MS)
    for _ in range(rounds):
        with scratch() as folder:
            reservation.ours.append(_first_of_a_reservation(folder))
            hold.ours.append(_command(folder, "hold", "seat-1", "--ttl", "3600"))
            show.ours.append(_command(folder, "show", "seat-1"))
        with scratch() as folder:
            of_object.ours.append(_first_of_an_object(folder))
    yield from (reservation, of_object, hold, show)
    yield from _memory(idle_connections)


def _first_of_a_reservation(folder: Path) -> float:
    fill(folder, 1, lambda i: int(time.time() * 1000) - 1_000)
    return _first_alarm_ms(Ours(folder))


def _first_of_an_object(folder: Path) -> float:
    asyncio.run(_armed(folder))
    (folder / "file.py").write_text(WORKER)
    server = Ours(
        folder, serves=("worker", str(folder / "file.py")), database=folder / "objects.db"
    )
    return _first_alarm_ms(server)


async def _armed(folder: Path) -> None:
    """An object whose alarm is due a second after its process has gone."""
    async with hosting(folder, COUNTER) as (host, _):
        await host.namespace("Counter").getByName("one").arm(int(time.time() * 1000) + 1_000)
    await asyncio.sleep(1)


def _first_alarm_ms(server: Ours) -> float:
    began_ms = time.time() * 1000
    server.start(wait=False)
    try:
        wait_for(lambda: sql(server.database, "SELECT count(*) FROM alarms")[0][0] == 0, 10, 0.005)
        line = wait_for(server.alarm_lines, 10, 0.005)[0]
    finally:
        server.ensure_gone()
    if line["outcome"] != "ok":
        raise WrongAnswer(f"the first alarm was {line['outcome']}")
    return line["scheduledTime"] + line["latenessMs"] - began_ms


def _command(folder: Path, *words: str) -> float:
    env = os.environ | {"RESERVATION_DATABASE": str(folder / "reservations.db")}
    began = time.perf_counter()
    subprocess.run([*COMMAND, *words], env=env, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def _memory(idle_connections: int) -> Iterator[Figure]:
    with ours() as server:
        time.sleep(SETTLE_SECONDS)
        empty_mb = resident_mb(server.worker_pid)
        with connections(server.port, idle_connections, request_head("GET", "/healthz")):
            time.sleep(SETTLE_SECONDS)
            idle_mb = resident_mb(server.worker_pid)
    yield Figure("memory of an empty server", "MB", [empty_mb], bar=Bar(60, of="ours", low=True))
    what = f"  with {idle_connections:,} idle connections"
    yield Figure(what, "MB", [idle_mb], bar=Bar(120, of="ours", low=True))
