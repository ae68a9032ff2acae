"""Alarms and scheduled events that end their process each time, beside innocent ones."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.infrastructure import alarm_row
from tests.conftest import MakeServer
from tests.support.database import sql
from tests.support.logs import verified
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time

COMMAND = [sys.executable, "-m", "tests.crash.short_leases"]

ALARMS = """
import asyncio, os, time
from workers import DurableObject, Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        due = int(time.time() * 1000) + 1_000
        if request.method == "POST":
            await self.env.KILLER.getByName("k").set(due)
            for number in range(5):
                await self.env.INNOCENT.getByName(f"i{number}").set(due)
        return Response("")


class Innocent(DurableObject):
    def set(self, due):
        self.ctx.storage.setAlarm(due)

    async def alarm(self, info):
        await asyncio.sleep(0.2)
        with open(os.path.join(os.path.dirname(__file__), "ran.txt"), "a") as log:
            log.write(f"{self.ctx.id.name}:{info.retryCount} ")


class Killer(Innocent):
    async def alarm(self, info):
        await asyncio.sleep(0.1)
        os._exit(9)
"""

AGENDA = """
import os, time
from workers import EventSchedule, Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        one, other = (self.env.AGENDA.getByName(name) for name in ("one", "other"))
        if request.method == "POST":
            due = int(time.time() * 1000) + 1_000
            for number in range(3):
                await one.scheduleEvent(f"a{number}", due)
            await one.scheduleEvent("killer", due)
            await one.scheduleEvent("tick", due, 200)
            await other.scheduleEvent("tick", due, 200)
        return Response.json([await one.listEvents(), await other.listEvents()])


class Agenda(EventSchedule):
    async def processEvent(self, event):
        if event["id"] == "killer":
            os._exit(9)
        with open(os.path.join(os.path.dirname(__file__), "ran.txt"), "a") as log:
            log.write(f"{self.ctx.id.name}/{event['id']} ")
"""


@pytest.fixture
def serve(make_server: MakeServer, tmp_path: Path) -> Iterator[Any]:
    made: list[Server] = []

    def make(file: str) -> Server:
        (tmp_path / "file.py").write_text(file)
        serves = ("worker", str(tmp_path / "file.py"))
        made.append(make_server(serves=serves, command=COMMAND).start())
        assert made[0].post("/", None).status == 200, made[0]
        return made[0]

    yield make
    assert verified(made[0].database).differences == []


def ran(folder: Path) -> list[str]:
    log = folder / "ran.txt"
    return log.read_text().split() if log.exists() else []


def test_f73_an_alarm_that_kills_its_process_leaves_its_neighbours_uncounted(
    serve: Any, tmp_path: Path
) -> None:
    server = serve(ALARMS)
    done = {f"i{number}:0" for number in range(5)}
    wait_for(lambda: set(ran(tmp_path)) == done, 20)
    # The killer was alone when it was begun, or will be: each such end is one of its attempts.
    counted = "SELECT count(*) FROM alarms WHERE id = 'object/Killer/k'"
    assert sql(server.database, counted) == [(1,)]
    wait_for(lambda: attempts(server, "object/Killer/k") >= 2, 20)
    assert sorted(ran(tmp_path)) == sorted(done)


def runs(server: Server) -> list[dict[str, Any]]:
    rows = sql(server.database, "SELECT state FROM events WHERE topic = 'schedule.RunEnded'")
    return [json.loads(state) for (state,) in rows]


def attempts(server: Server, id: str) -> int:
    ((state,),) = sql(server.database, "SELECT job_state FROM alarms WHERE id = ?", id)
    return alarm_row.decode(state).attempts


def test_f82_a_scheduled_event_that_kills_its_process_is_counted_alone(
    serve: Any, tmp_path: Path
) -> None:
    server = serve(AGENDA)

    def counted() -> Any:
        try:
            answer = server.get("/")
        except OSError:
            return None  # it is being replaced
        if answer.status != 200:
            return None
        one, other = answer.json()
        events = {e["id"]: e for e in one}
        killer = events["killer"]
        return killer["attempts"] >= 1 and events.keys() == {"killer", "tick"} and (events, other)

    events, other = wait_for(counted, 30, 0.1)
    assert (events["tick"]["attempts"], other[0]["attempts"]) == (0, 0)
    ends = [r for r in runs(server) if r["event_id"] in ("a0", "a1", "a2", "killer")]
    found = sorted({(r["event_id"], r["attempt"], r["outcome"]) for r in ends})
    assert found[:3] == [(f"a{n}", 1, "ok") for n in range(3)]
    assert found[3] == ("killer", 1, "interrupted")
    assert len([r for r in ends if r["event_id"] != "killer"]) == 3
    # While the killer waits for its next attempt, 2 s later at least, the others run on.
    before, began = ran(tmp_path).count("one/tick"), time.monotonic()
    wait_for(lambda: ran(tmp_path).count("one/tick") >= before + 4, 10)
    assert ran(tmp_path).count("other/tick") > 4
    assert time.monotonic() - began < 10
