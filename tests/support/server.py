"""A real server in processes of its own, on a free port and a scratch database.

`LAUNCHER` lets a crash test run the same command with a fault built in (see
tests/crash/launcher.py); the product has no switch for that.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress

COMMAND = [sys.executable, "-m", "reservation_expiry"]
READY_WITHIN_SECONDS = 20.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`reservation-expiry serve`, or what else `serves`. Its output is in the files `out`
    and `err`."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        port: int | None = None,
        command: list[str] | None = None,
        env: dict[str, str] | None = None,
        serves: tuple[str, ...] = ("serve",),
        database: Address | None = None,
    ) -> None:
        self.folder = folder
        self.database = database or folder / "reservations.db"
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.out = folder / f"out-{self.port}.txt"
        self.err = folder / f"err-{self.port}.txt"
        self._command = command or COMMAND
        self._options = options
        self._serves = serves
        self._env = env or {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> "Server":
        arguments = [*self._serves, "--port", str(self.port)]
        env = {**os.environ, "RESERVATION_DATABASE": url_of(self.database), **self._env}
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [*self._command, *arguments, *self._options],
                stdout=out,
                stderr=err,
                env=env,
                start_new_session=True,
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server exited with {self.process.returncode}: {self}")
            try:
                if self.get("/readyz").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"the server was not ready in time: {self}")

    def lives(self) -> bool:
        """Whether it answers, to whoever may ask for more or not."""
        try:
            return self.get("/healthz").status == 200
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9 of every process of it, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM, timeout: float = 20.0) -> int:
        """Asks it to stop and returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout)

    def ensure_gone(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def worker_pids(self) -> list[int]:
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(pid) for pid in Path(path).read_text().split()]

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Answer:
        return self.request("POST", path, json.dumps(body).encode())

    def hold(self, name: str, ttl_seconds: int) -> Any:
        answer = self.post(f"/reservations/{name}", {"ttlSeconds": ttl_seconds})
        assert answer.status == 201, answer
        return answer.json()

    def state(self, name: str) -> Any:
        return self.get(f"/reservations/{name}").json()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        request = urllib.request.Request(self.url + path, body, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return Answer(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())

    def alarm_lines(self) -> list[dict[str, Any]]:
        """What the alarm log has said so far."""
        lines = self.out.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def __str__(self) -> str:
        return f"{self.out.read_text()}\n{self.err.read_text()}"


def url_of(address: Address) -> str:
    """What a user would write for it, secrets and all."""
    return address.url if isinstance(address, PostgresAddress) else str(address)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition: Any, within_seconds: float, every_seconds: float = 0.02) -> Any:
    """The first true result of `condition()`, or an AssertionError when time is up."""
    deadline = time.monotonic() + within_seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_seconds} s: last was {result!r}")
        time.sleep(every_seconds)
