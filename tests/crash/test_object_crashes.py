"""Objects' alarms through kill -9 of real processes, one server process or three."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infrastructure.event_mapper import EventMapper
from infrastructure.sqlite.database import Database
from infrastructure.verify import verify
from tests.support.server import Server, wait_for

SLEEPER = Path(__file__).parents[1] / "support" / "sleeper.py"
LEASE_SECONDS = 5

pytestmark = pytest.mark.real_time


@pytest.fixture(params=[1, 3], ids=["one process", "three processes"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    served = Server(tmp_path, "--workers", str(request.param), serves=("worker", str(SLEEPER)))
    served.start()
    try:
        yield served
        assert served.stop() == 0, served
        database = Database(served.database)
        report = verify(database, EventMapper())
        database.close()
        assert report.differences == []
    finally:
        served.ensure_gone()


def state(server: Server, name: str) -> Any:
    answer = server.get(f"/{name}")
    return answer.json() if answer.status == 200 else {}


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
    wait_for(lambda: state(server, "foo").get("runs"), 10)
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
