"""`serve --objects FILE`: a file's front door, and the service's own routes below a prefix."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from reservation_expiry.api.cli import main
from tests.support.logs import verified
from tests.support.server import COMMAND, Server, free_port, wait_for

COUNTING = """
from workers import DurableObject, Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        if request.method == "POST":
            await self.env.BELL.getByName("door").ring_soon()
        return Response(request.url.partition("/")[2].partition("/")[2].partition("/")[2])


class Bell(DurableObject):
    async def ring_soon(self):
        await self.ctx.storage.setAlarm(1)

    async def alarm(self, info):
        await self.ctx.storage.put("rung", 1)
"""
SCHEDULE_IN_A_FILE = """
from workers import DurableObject, WorkerEntrypoint


class Default(WorkerEntrypoint):
    pass


class EventSchedule(DurableObject):
    pass
"""

pytestmark = pytest.mark.real_time


def served(tmp_path: Path, *options: str) -> Server:
    file = tmp_path / "file.py"
    file.write_text(COUNTING)
    return Server(tmp_path, "--objects", str(file), *options).start()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Server]:
    server = served(tmp_path, "--service-prefix", "/own/service")
    try:
        yield server
        assert server.stop() == 0
    finally:
        server.ensure_gone()
    assert verified(server.database).found == 0


def test_without_a_prefix_the_files_front_door_answers_every_path(tmp_path: Path) -> None:
    server = served(tmp_path)
    try:
        assert server.get("/reservations/seat-1").body == b"reservations/seat-1"
    finally:
        server.ensure_gone()


def test_below_the_prefix_are_the_services_routes_and_elsewhere_the_files(both: Server) -> None:
    hold = both.post("/own/service/reservations/seat-1", {"ttlSeconds": 60})
    assert (hold.status, hold.json()["status"]) == (201, "held")
    assert both.get("/own/service/reservations/seat-1").json()["reservationId"] == "seat-1"
    assert both.get("/own/service/events").json()["events"]
    assert both.get("/own/service/healthz").json() == {"status": "ok"}
    assert both.get("/own/service/nowhere").status == 400, "as the contract says"
    for path in ("/reservations/seat-1", "/own/services", "/own", "/ownservice/events"):
        assert both.get(path).body.decode() == path[1:]


def test_a_path_is_the_services_if_it_is_below_the_prefix_once_it_is_resolved(
    both: Server,
) -> None:
    """Or a proxy that lets nobody to the prefix would let them through."""
    assert both.get("/own/x/../service/healthz").json() == {"status": "ok"}
    assert both.get("/own/%2e%2e/own/service/healthz").json() == {"status": "ok"}
    assert both.get("/own/service/../x").body == b"own/service/../x", "as it was asked for"


def test_reservations_schedules_and_the_files_objects_ring_in_one_process(both: Server) -> None:
    soon = int(time.time() * 1000) + 200
    event = json.dumps({"runAt": soon}).encode()
    put = both.request("PUT", "/own/service/schedules/day/events/tea", event)
    assert put.status == 201, put.body
    both.request("POST", "/ring", b"")
    both.post("/own/service/reservations/seat-1", {"ttlSeconds": 5})

    def rung() -> set[str]:
        lines = [line for line in both.out.read_text().splitlines() if line.startswith("{")]
        return {json.loads(line)["entrypoint"] for line in lines}

    wait_for(lambda: len(rung()) == 3, 10)


@pytest.mark.parametrize("prefix", ["own", "/", "/own/", "/o wn", "/a/../b", ""])
def test_a_prefix_that_is_no_path_is_refused_in_a_sentence(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(COUNTING)
    words = ("serve", "--objects", str(tmp_path / "file.py"), "--service-prefix", prefix)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "is not a path such as /service" in result.output


def test_what_goes_with_a_file_is_refused_without_one() -> None:
    result = CliRunner().invoke(main, ("serve", "--service-prefix", "/own"))
    assert result.exit_code == 2
    assert "--service-prefix go with --objects" in result.output


def test_a_file_with_a_class_of_the_services_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(SCHEDULE_IN_A_FILE)
    words = ("serve", "--objects", str(tmp_path / "file.py"), "--service-prefix", "/own")
    env = {"RESERVATION_DATABASE": str(tmp_path / "own.db"), "RESERVATION_PORT": str(free_port())}
    result = subprocess.run(
        [*COMMAND, *words], env=os.environ | env, capture_output=True, text=True, timeout=30
    )
    assert result.returncode == 3
    assert "has a class EventSchedule, which the service has, too" in result.stderr
