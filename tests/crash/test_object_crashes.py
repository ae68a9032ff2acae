"""Objects' alarms through kill -9 of real processes, one server process or three."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.stores.address import Address
from tests.conftest import MakeServer
from tests.support.database import sql
from tests.support.logs import verified
from tests.support.server import Server, wait_for

SLEEPER = Path(__file__).parents[1] / "support" / "sleeper.py"
LEASE_SECONDS = 5

pytestmark = pytest.mark.real_time


@pytest.fixture(params=[1, 3], ids=["one process", "three processes"])
def server(request: pytest.FixtureRequest, make_server_on_either: MakeServer) -> Iterator[Server]:
    workers = ("--workers", str(request.param))
    served = make_server_on_either(*workers, serves=("worker", str(SLEEPER))).start()
    yield served
    assert served.stop() == 0, served
    assert verified(served.database).differences == []


def state(server: Server, name: str) -> Any:
    answer = server.get(f"/{name}")
    return answer.json() if answer.status == 200 else {}


def has_begun(server: Server) -> bool:
    """Whether an alarm has. From the log: a process that does not have the object would wait
    for the handler to end before it answered."""
    return any(b'"runs"' in state for (state,) in sql(server.database, "SELECT state FROM events"))


def post(server: Server, path: str) -> Any:
    answer = server.post(path, None)
    assert answer.status == 200, (answer, server)
    return answer.json()


def wait_until_done(server: Server, name: str, within_seconds: float) -> list[int]:
    found = wait_for(lambda: (s := state(server, name)).get("done") and s, within_seconds)
    return found["runs"]


def test_an_alarm_fires_on_time_and_its_line_names_the_class(server: Server) -> None:
    post(server, "/foo?in=300")
    assert wait_until_done(server, "foo", 10) == [0]
    (line,) = wait_for(server.alarm_lines, 5)
    assert line["entrypoint"] == "Sleeper"
    assert (line["event"], line["objectName"]) == ("object-alarm", "foo")
    assert line["latenessMs"] >= 0


def test_kill_right_after_the_reply_loses_no_alarm(server: Server) -> None:
    for number in range(5):
        post(server, f"/n{number}?in=100")
    server.kill()
    server.start()
    for number in range(5):
        runs = wait_until_done(server, f"n{number}", 3 * LEASE_SECONDS)
        # One may have been running when it was killed: then this is its second attempt.
        assert len(runs) <= 2
        assert runs in ([0], [1], [0, 1])


def test_kill_during_the_handler_runs_it_again_and_counts_the_attempt(server: Server) -> None:
    post(server, "/foo?in=0&slow=60000")
    wait_for(lambda: has_begun(server), 10)
    server.kill()
    server.start()
    assert wait_until_done(server, "foo", 3 * LEASE_SECONDS) == [0, 1]


def test_kill_between_two_retries_keeps_the_count(server: Server) -> None:
    post(server, "/foo?in=0&fails=1")
    wait_for(lambda: [line["outcome"] for line in server.alarm_lines()] == ["retry"], 10)
    server.kill()
    time.sleep(0.1)
    server.start()
    assert wait_until_done(server, "foo", 3 * LEASE_SECONDS) == [0, 1]


def test_a_killed_process_is_replaced_and_its_objects_go_on(server: Server) -> None:
    for number in range(6):
        post(server, f"/n{number}?in=3600000")
    for pid in server.worker_pids():
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)

    def all_answer() -> bool:
        try:
            return all(state(server, f"n{n}").get("alarm") for n in range(6))
        except OSError:
            return False

    wait_for(all_answer, 6 * LEASE_SECONDS)


def test_sigterm_gives_back_what_does_not_end_and_answers_who_waits(
    make_server_on_either: MakeServer,
) -> None:
    server = make_server_on_either(serves=("worker", str(SLEEPER))).start()
    try:
        post(server, "/foo?in=0&slow=60000")
        wait_for(lambda: state(server, "foo").get("runs"), 10)
        answers: list[int] = []
        waiting = threading.Thread(
            target=lambda: answers.append(server.get("/bar?wait=60000").status)
        )
        waiting.start()
        time.sleep(0.5)
        assert server.stop() == 0, server
        waiting.join(10)
        assert answers == [503]
        ((job_state,),) = sql(server.database, "SELECT job_state FROM alarms")
        assert sql(server.database, "SELECT count(*) FROM owners") == [(0,)]
        found = alarm_row.decode(job_state)
        assert found == AlarmSlot(found.scheduled_time)  # no attempt counted, no token
    finally:
        server.ensure_gone()


def test_a_request_whose_client_went_away_in_its_body_is_not_run(tmp_path: Path) -> None:
    server = Server(tmp_path, serves=("worker", str(SLEEPER))).start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(
                b"POST /foo?in=60000 HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nabc"
            )
            time.sleep(0.2)
        time.sleep(0.3)
        assert state(server, "foo") == {"alarm": None}
    finally:
        server.ensure_gone()


def test_kill_in_the_middle_of_a_pass_loses_no_event_and_repeats_no_finished_one(
    tmp_path: Path, make_server_on_either: MakeServer
) -> None:
    file = tmp_path / "agenda.py"
    file.write_text(AGENDA)
    server = make_server_on_either(serves=("worker", str(file))).start()
    try:
        server.post("/", None)
        log = tmp_path / "ran.txt"
        wait_for(lambda: log.exists() and len(log.read_text().split()) >= 20, 15)
        server.kill()
        finished = set(topics_of_finished(server.database))
        server.start()
        wait_for(lambda: server.get("/").body == b"0", 20)
        ran = log.read_text().split()
        assert set(ran) == {f"e{number:02}" for number in range(60)}  # none was lost
        assert all(ran.count(name) == 1 for name in finished)  # none that was finished ran again
        # At most the one that was cut off, and one whose end was still on its way to the disk.
        assert len(ran) <= 60 + 2
    finally:
        server.ensure_gone()


AGENDA = """
import asyncio, os, time
from workers import DurableObject, EventSchedule, Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        agenda = self.env.AGENDA.getByName("a")
        if request.method == "POST":
            for number in range(60):
                await agenda.scheduleEvent(f"e{number:02}", int(time.time() * 1000) + 1_000)
        return Response(str(len(await agenda.listEvents())))


class Agenda(EventSchedule):
    turn = asyncio.Lock()

    async def processEvent(self, event):
        async with self.turn:
            with open(os.path.join(os.path.dirname(__file__), "ran.txt"), "a") as log:
                log.write(event["id"] + " ")
            await asyncio.sleep(0.02)
"""


def topics_of_finished(database: Address) -> list[str]:
    """The events that the log says were run to a good end: deleted from the schedule."""
    states = sql(database, "SELECT state FROM events WHERE topic = 'object.StorageWritten'")
    deleted = [key for (state,) in states for key in json.loads(state).get("deletes", [])]
    return [key.removeprefix("event:") for key in deleted if key.startswith("event:")]
