"""The parent of the serving processes: signals, outputs that fail, code that is loaded anew."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.staging import END_WITHIN_SECONDS
from tests.support.server import COMMAND, Server, free_port, wait_for

pytestmark = pytest.mark.real_time

WORKER = """
from workers import Response, WorkerEntrypoint

class Default(WorkerEntrypoint):
    def fetch(self, request):
        return Response("{text}")
"""
BROKEN = WORKER.format(text="third") + "\nclass ("
RAISES = "import sys\nsys.exit('no')\n" + WORKER.format(text="fourth")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGINT, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGINT),
    ],
)
@pytest.mark.parametrize("pause", [0.0, 0.1, 0.4])
def test_f75_a_second_signal_while_it_stops_changes_nothing(
    make_server, first: int, second: int, pause: float
):
    server = make_server().start()
    server.hold("seat-1", 600)
    os.killpg(server.process.pid, first)
    time.sleep(pause)
    with suppress(ProcessLookupError):
        os.killpg(server.process.pid, second)
    assert server.process.wait(END_WITHIN_SECONDS) == 0
    assert "Traceback" not in server.err.read_text()


@pytest.mark.parametrize("output", ["/dev/full", "closed"])
def test_f76_a_banner_that_cannot_be_written_is_not_worth_the_service(tmp_path: Path, output: str):
    port = free_port()
    server = Server(tmp_path, port=port)
    reader, writer = os.pipe()
    os.close(reader)  # whoever read has gone before the first line
    out = writer if output == "closed" else os.open(output, os.O_WRONLY)
    with server.err.open("wb") as err:
        server.process = subprocess.Popen(
            [*COMMAND, "serve", "--port", str(port), "--database", str(tmp_path / "r.db")],
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    server.out.touch()
    os.close(out)
    try:
        server.wait_until_ready()
        assert server.hold("seat-1", 5)["status"] == "held"
        assert server.stop() == 0
    finally:
        server.ensure_gone()


@pytest.fixture
def worker(tmp_path: Path):
    file = tmp_path / "file.py"
    file.write_text(WORKER.format(text="first"))
    server = Server(tmp_path, "--workers", "2", serves=("worker", str(file)))
    server.start(wait=False)
    try:
        wait_for(lambda: "serving on" in server.out.read_text(), 10)
        yield server, file
        assert server.stop() == 0
    finally:
        server.ensure_gone()


def answers(server: Server) -> set[bytes]:
    return {server.get("/").body for _ in range(20)}


def test_f55_sighup_serves_what_the_file_says_now(worker):
    server, file = worker
    before = server.worker_pids()
    file.write_text(WORKER.format(text="second"))
    os.kill(server.process.pid, signal.SIGHUP)
    wait_for(lambda: answers(server) == {b"second"}, 10)
    wait_for(lambda: len(server.worker_pids()) == 2, 5)
    assert not set(before) & set(server.worker_pids())


@pytest.mark.parametrize("content", [BROKEN, RAISES, None], ids=["syntax", "raises", "gone"])
def test_f55_what_cannot_be_loaded_leaves_the_old_code_serving(worker, content: str | None):
    server, file = worker
    before = server.worker_pids()
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    os.kill(server.process.pid, signal.SIGHUP)
    wait_for(lambda: "the old ones go on" in server.err.read_text(), 10)
    assert answers(server) == {b"first"}
    wait_for(lambda: server.worker_pids() == before, 5)
    # And whoever takes a dead one's place runs what the others run.
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: len(server.worker_pids()) == 2 and before[0] not in server.worker_pids(), 5)
    wait_for(lambda: answers(server) == {b"first"}, 5)
    assert server.err.read_text().count("the old ones go on") == 1
    assert "Traceback" not in server.err.read_text()


def test_f54_another_event_loop_that_is_installed_is_not_taken(make_server, tmp_path: Path):
    for name in ("rloop", "winloop"):
        (tmp_path / "others" / name).mkdir(parents=True)
        (tmp_path / "others" / name / "__init__.py").write_text("raise RuntimeError('not this')\n")
    path = os.pathsep.join([str(tmp_path / "others"), *sys.path])
    server = make_server(env={"PYTHONPATH": path}).start()
    assert server.hold("seat-1", 600)["status"] == "held"
    assert server.stop() == 0
    assert "not this" not in server.err.read_text()
