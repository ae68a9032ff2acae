"""The worker command: people's files, served as they are written."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from reservation_expiry.api.worker import WorkerRefused, binding_name, read_worker
from reservation_expiry.infrastructure.objects.messages import Response
from tests.support.server import Server, free_port, wait_for

# In the form of the API's documentation: fetch returns nothing, what storage returns is
# awaited once and not the other time, and alarm() is declared without its argument.
REMINDER = """
import time

from workers import DurableObject, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return await self.env.REMINDER.getByName("tea").fetch(request)


class Reminder(DurableObject):
    def __init__(self, ctx, env):
        super().__init__(ctx, env)
        self.storage = ctx.storage

    async def fetch(self, request):
        if await self.storage.getAlarm() is None:
            self.storage.setAlarm(int(time.time() * 1000) + 500)

    async def alarm(self):
        pass
"""

# Told of a retry by the mapping's get, with a default.
PERSISTENT = """
from workers import DurableObject, Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        if request.method == "DELETE":
            raise RuntimeError("not today")
        if request.url.endswith("/wrong"):
            return {"not": "a response"}
        if request.method == "PUT":
            text = await request.text()
            return Response(text, status=202, headers={"X-Seen": request.headers["x-asked"]})
        await self.env.JOBS.getByName("job").start()
        return Response.json({"greeting": self.env.GREETING, "started": True})


class Persistent(DurableObject):
    def start(self):
        self.ctx.storage.setAlarm(1)

    async def alarm(self, alarm_info):
        if alarm_info and alarm_info.get("retryCount", 0) != 0:
            print(f"attempted {alarm_info.get('retryCount')} times before", flush=True)
        else:
            raise RuntimeError("the first attempt fails")
"""

CONFIG = """
[[durable_objects.bindings]]
name = "JOBS"
class_name = "Persistent"

[vars]
GREETING = "hello"
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "file.py").write_text(PERSISTENT)
    config = ("--config", str(tmp_path / "config.toml"))
    server = Server(tmp_path, *config, serves=("worker", str(tmp_path / "file.py"))).start()
    try:
        yield server
        assert server.stop() == 0
    finally:
        server.ensure_gone()


OWN_HEALTH = """
from workers import DurableObject, Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    answers_health = True

    async def fetch(self, request):
        return Response(f"mine: {request.url.rpartition('/')[2]}")
"""


@pytest.mark.real_time
def test_health_is_answered_for_a_file_unless_its_front_door_asks_for_it(
    served: Server, tmp_path: Path
) -> None:
    assert served.get("/healthz").json() == {"status": "ok"}
    assert served.get("/readyz").json()["status"] == "ready"
    assert served.request("PUT", "/healthz", b"x").status == 202, "GET alone is health's"
    (tmp_path / "own.py").write_text(OWN_HEALTH)
    server = Server(tmp_path, serves=("worker", str(tmp_path / "own.py"))).start()
    try:
        assert server.get("/healthz").body == b"mine: healthz"
        assert server.get("/readyz").body == b"mine: readyz"
    finally:
        server.ensure_gone()


@pytest.mark.real_time
def test_a_handler_that_returns_nothing_is_204_and_its_alarm_rings(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(REMINDER)
    server = Server(tmp_path, serves=("worker", str(tmp_path / "file.py"))).start(wait=False)
    try:
        wait_for(lambda: answers(server), 15)
        asked_ms = time.time() * 1000
        (line,) = wait_for(server.alarm_lines, 10)
        assert line["entrypoint"] == "Reminder"
        assert (line["retryCount"], line["isRetry"], line["outcome"]) == (0, False, "ok")
        assert line["scheduledTime"] - asked_ms <= 500
        assert server.stop() == 0
    finally:
        server.ensure_gone()


def answers(server: Server) -> bool:
    try:
        return server.get("/").status == 204
    except OSError:
        return False


@pytest.mark.real_time
def test_bindings_and_variables_retries_and_responses(served: Server) -> None:
    assert served.get("/").json() == {"greeting": "hello", "started": True}
    lines = wait_for(lambda: len(served.alarm_lines()) >= 2 and served.alarm_lines(), 10)
    assert [(line["outcome"], line["retryCount"]) for line in lines[:2]] == [
        ("retry", 0),
        ("ok", 1),
    ]
    began_at = [line["scheduledTime"] + line["latenessMs"] for line in lines[:2]]
    assert 2_000 <= began_at[1] - began_at[0] - lines[0]["durationMs"] <= 2_750
    assert "attempted 1 times before" in served.out.read_text()


@pytest.mark.real_time
def test_requests_and_responses_carry_bodies_and_headers(served: Server) -> None:
    request = urllib.request.Request(
        f"{served.url}/a%20b?c=%20d", b"body", headers={"X-Asked": "yes"}, method="PUT"
    )
    with urllib.request.urlopen(request) as answer:
        assert (answer.status, answer.headers["X-Seen"], answer.read()) == (202, "yes", b"body")
        assert answer.headers["Content-Length"] == "4"


@pytest.mark.real_time
def test_what_goes_wrong_in_the_front_door_is_500_and_logged(served: Server) -> None:
    assert served.request("DELETE", "/").status == 500
    assert served.get("/wrong").status == 500
    wait_for(lambda: "RuntimeError: not today" in served.err.read_text(), 5)
    wait_for(lambda: "which is no Response" in served.err.read_text(), 5)


@pytest.mark.real_time
def test_a_port_in_use_and_a_file_that_fails_are_said_in_a_sentence(served: Server) -> None:
    folder = served.folder
    other = run("worker", str(folder / "file.py"), "--port", str(served.port), folder=folder)
    assert other.returncode == 4
    assert "cannot listen" in other.stderr
    (folder / "bad.py").write_text("import nothing_of_this_name")
    bad = run("worker", str(folder / "bad.py"), "--port", str(free_port()), folder=folder)
    assert bad.returncode == 3
    assert bad.stderr.startswith("reservation-expiry: ")
    assert "No module named 'nothing_of_this_name'" in bad.stderr
    assert "Traceback" not in bad.stderr


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reservation_expiry", *arguments]
    environment = {**os.environ, "RESERVATION_DATABASE": str(folder / "other.db")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


REFUSED = {
    "no front door": ("class Other: pass", "", r"has no class Default\(WorkerEntrypoint\)"),
    "a syntax error": ("def :", "", "cannot be run: SyntaxError"),
    "a binding of nothing": (
        PERSISTENT,
        CONFIG.replace('class_name = "Persistent"', 'class_name = "Gone"'),
        "binds JOBS to Gone, which is no DurableObject",
    ),
    "broken TOML": (PERSISTENT, "[", "cannot be used"),
    "an unknown key": (PERSISTENT, "kv = 1", "unknown field"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_is_refused_that_has(kind: str, tmp_path: Path) -> None:
    source, config, sentence = REFUSED[kind]
    (tmp_path / "file.py").write_text(source)
    (tmp_path / "config.toml").write_text(config)
    with pytest.raises(WorkerRefused, match=sentence):
        read_worker(tmp_path / "file.py", tmp_path / "config.toml" if config else None).run()


@pytest.mark.parametrize(
    ("class_name", "binding"),
    [("AlarmExample", "ALARM_EXAMPLE"), ("A", "A"), ("HTTPServer2Go", "HTTP_SERVER2_GO")],
)
def test_a_binding_is_named_after_its_class(class_name: str, binding: str) -> None:
    assert binding_name(class_name) == binding


def test_the_module_workers_is_not_there_for_anybody_else() -> None:
    code = (
        "import importlib.util, reservation_expiry.api.cli; "
        "import reservation_expiry.infrastructure.objects.host; "
        "print(importlib.util.find_spec('workers'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


def test_a_response_speaks_json_both_ways() -> None:
    response = Response.json({"a": 1}, status=418, headers={"X-A": "b"})
    assert (response.status, response.status_text) == (418, "I'm a Teapot")
    assert dict(response.headers.items()) == {"X-A": "b", "Content-Type": "application/json"}
    with pytest.raises(ValueError, match="200 to 599"):
        Response("x", 99)
    with pytest.raises(TypeError, match="text or bytes"):
        Response({"a": 1})
