"""Servers whose output nobody reads, or cannot be written: alarms run, requests are answered.

Real servers in processes of their own, on pipes made small so that they fill up at once.
"""

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.infrastructure.stores.address import Address
from tests.crash.staging import hold_in, now_ms, wait_for_expired
from tests.support.server import COMMAND, Server, url_of, wait_for

pytestmark = pytest.mark.real_time

SLEEPER = str(Path(__file__).parents[1] / "support" / "sleeper.py")
SMALL_PIPE = 4096
HOLDS = [f"seat-{number}" for number in range(150)]
CLOSED = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *COMMAND]


class UnreadServer(Server):
    """One of whose streams is the writing end of a pipe that nobody reads, or another file."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.streams = {name: keywords.pop(name) for name in ("stdout", "stderr") & keywords.keys()}
        super().__init__(*arguments, **keywords)

    def start(self, *, wait: bool = True) -> Server:
        env = {**os.environ, "RESERVATION_DATABASE": url_of(self.database)}
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [*self._command, *self._serves, "--port", str(self.port), *self._options],
                **{"stdout": out, "stderr": err, **self.streams},
                env=env,
                start_new_session=True,
            )
        if wait:
            self.wait_until_ready()
        return self


@pytest.fixture
def unread() -> Iterator[int]:
    """The writing end of a small pipe."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    yield writer
    os.close(reader)
    with suppress(OSError):
        os.close(writer)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make_one(**keywords: Any) -> Server:
        made.append(UnreadServer(tmp_path, **keywords))
        return made[-1]

    yield make_one
    for server in made:
        server.ensure_gone()


def test_f34_holds_expire_though_nobody_reads_standard_output(
    new_address: Callable[[], Address], make: Callable[..., Server], unread: int
) -> None:
    server = make(database=new_address(), stdout=unread).start()
    hold_in(server.database, HOLDS, due_at_ms=now_ms() + 300)
    wait_for_expired(server.database, len(HOLDS), 5)
    server.hold("another", 60)
    answer = server.get("/readyz")
    assert (answer.status, answer.json()["backlogMs"]) == (200, 0)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 5


def test_f34_lines_that_found_no_room_are_counted_in_readyz(
    make: Callable[..., Server], unread: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tiny = (
        "import reservation_expiry.infrastructure.machine.output as o; o.QUEUE_BYTES = 2000; "
        "from reservation_expiry.api.cli import main; main()"
    )
    command = [COMMAND[0], "-c", tiny]
    server = make(stdout=unread, command=command).start()
    hold_in(server.database, HOLDS, due_at_ms=now_ms() + 300)
    wait_for_expired(server.database, len(HOLDS), 5)
    wait_for(lambda: server.get("/readyz").json()["logLinesDropped"] > 100, 2)
    assert server.get("/readyz").status == 200


def test_f34_alarms_run_and_requests_are_answered_though_nobody_reads_standard_error(
    make: Callable[..., Server], unread: int
) -> None:
    server = make(serves=("worker", SLEEPER), stderr=unread).start()
    for number in range(30):  # each logs a traceback
        assert server.post(f"/sleeper-{number}?fails=1", None).status == 200
    states = [f"/sleeper-{number}" for number in range(30)]
    wait_for(lambda: all("done" in server.get(path).json() for path in states), 8, 0.2)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", ["full", "closed", "gone"])
def test_f34_a_server_serves_whatever_its_output_is(kind: str, make: Callable[..., Server]) -> None:
    server = make(command=CLOSED) if kind == "closed" else make(**streams_of(kind))
    server.start()
    hold_in(server.database, HOLDS[:3], due_at_ms=now_ms() + 200)
    wait_for_expired(server.database, 3, 5)
    assert server.get("/readyz").status == 200
    assert server.stop() == 0


def streams_of(kind: str) -> dict[str, int]:
    if kind == "full":
        end = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, end = os.pipe()
        os.close(reader)
    return {"stdout": end, "stderr": end}
