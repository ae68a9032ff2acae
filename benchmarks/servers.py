"""Who is measured: this service, its peer on workerd, and stock APScheduler.

Every server runs on scratch data and a free port, on loopback only. The workerd peer is
the Worker in `workerd/`, served by the npm package pinned there.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

from benchmarks.load import MissingTool
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.server import Server, free_port

HERE = Path(__file__).parent
PEERS = HERE / ".peers"
READY_WITHIN_SECONDS = 60


class Ours(Server):
    """This service, with its database kept in a folder of its own."""

    name = "reservation-expiry"

    @property
    def worker_pid(self) -> int:
        return self.worker_pids()[0]


@contextmanager
def ours(
    *options: str,
    folder: Path | None = None,
    database: Address | None = None,
    command: list[str] | None = None,
) -> Iterator[Ours]:
    """Serves a database, or `folder`'s, or a fresh one, until the block ends: this tree's
    server, or the one that `command` starts."""
    with scratch() as made:
        options = ("--log-level", "warning", *options)
        server = Ours(folder or made, *options, database=database, command=command)
        server.start()
        try:
            yield server
            server.stop()
        finally:
            server.ensure_gone()


class Workerd:
    """The peer. Its objects, their databases and its alarms are under `folder`."""

    name = "workerd"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.out = folder / "out.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Workerd":
        binary = workerd_binary()
        (self.folder / "state").mkdir(exist_ok=True)
        shutil.copy(HERE / "workerd" / "worker.js", self.folder)
        template = Template((HERE / "workerd" / "config.capnp.template").read_text())
        config = template.substitute(STATE=self.folder / "state", PORT=self.port)
        (self.folder / "config.capnp").write_text(config)
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(
                [binary, "serve", self.folder / "config.capnp"], stdout=out, stderr=out
            )
        try:
            wait_until_served(self.port)
        except MissingTool:  # as when thousands of its objects are overdue, on a slow disk
            self.stop()
            raise
        return self

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextmanager
def workerd(folder: Path | None = None) -> Iterator[Workerd]:
    with scratch() as made:
        server = Workerd(folder or made).start()
        try:
            yield server
        finally:
            server.stop()


def workerd_binary() -> Path:
    """The pinned workerd, installed from npm the first time. Raises MissingTool."""
    binary = PEERS / "node_modules" / ".bin" / "workerd"
    if not binary.exists():
        if shutil.which("npm") is None:
            raise MissingTool("npm is not installed, so neither is the workerd peer")
        PEERS.mkdir(exist_ok=True)
        shutil.copy(HERE / "workerd" / "package.json", PEERS)
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
        if subprocess.run(command, cwd=PEERS, check=False).returncode:
            raise MissingTool("npm could not install workerd")
    return binary


def wait_until_served(port: int) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1):
                return
        except OSError:
            time.sleep(0.02)
    raise MissingTool(f"it did not serve within {READY_WITHIN_SECONDS} s")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk that the checkout is on, not on a RAM disk."""
    parent = HERE / ".scratch"
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def resident_mb(pid: int | str) -> float:
    """Resident memory of a process in MB, without what it shares with others."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    return kilobytes["Rss"] / 1024


def cpu_count() -> int:
    return len(os.sched_getaffinity(0))
