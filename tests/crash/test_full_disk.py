"""A disk that is full: what is refused meanwhile, and that service resumes."""

import resource
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.crash.staging import (
    hold_in,
    now_ms,
    wait_for_expired,
)
from tests.support.invariants import check_invariants
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time

HELD_AND_EXPIRED = ["Held", "AlarmScheduled", "Expired"]


class Full:
    """A disk that is full for the server's files, until it is not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, server: Server) -> None:
        raise NotImplementedError

    def empty(self, server: Server) -> None:
        raise NotImplementedError

    statuses: tuple[int, ...]


class FileSizeLimit(Full):
    """`ulimit -f` on the running worker; the driver calls it an I/O error."""

    statuses = (503, 507)

    def fill(self, server: Server) -> None:
        wal = server.database.with_name(server.database.name + "-wal")
        room = max(server.database.stat().st_size, wal.stat().st_size) + 64 * 1024
        self._limit(server, room)

    def empty(self, server: Server) -> None:
        self._limit(server, resource.RLIM_INFINITY)

    def _limit(self, server: Server, size: int) -> None:
        for pid in server.worker_pids():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class SmallDisk(Full):
    """A file system of two megabytes, its free space taken by somebody else."""

    statuses = (507,)

    def fill(self, server: Server) -> None:
        """With an empty WAL, which the server would else give up for what comes next."""
        with closing(sqlite3.connect(server.database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with (self.folder / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(b"x" * 4096):
                pass

    def empty(self, server: Server) -> None:
        (self.folder / "filler").unlink()


@pytest.fixture(params=[FileSizeLimit, SmallDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Full]:
    if request.param is FileSizeLimit:
        yield FileSizeLimit(tmp_path)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT TESTED: this user may not mount a small file system")
    yield SmallDisk(tmp_path)
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_f22_a_full_disk_refuses_holds_and_alarms_whole_and_service_resumes(disk, make_server):
    due = [f"due-{number}" for number in range(5)]
    server = make_server().start()
    held = ["before"]
    server.hold("before", 3600)
    due_at_ms = now_ms() + 2_000
    hold_in(server.database, due, due_at_ms=due_at_ms)

    disk.fill(server)
    refused = {}
    while len(refused) < 10:
        name = f"full-{len(held) + len(refused)}"
        answer = server.post(f"/reservations/{name}", {"ttlSeconds": 3600})
        if answer.status == 201:
            held.append(name)
        else:
            refused[name] = answer
    time.sleep(max(0, due_at_ms - now_ms()) / 1000 + 1.2)

    for name, answer in refused.items():
        assert answer.status in disk.statuses
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status
        assert server.state(name)["status"] == "missing"
    assert {server.state(name)["status"] for name in due} == {"held"}
    log = check_invariants(server.database)
    assert log.events.keys() == {*due, *held}

    disk.empty(server)
    wait_for(lambda: server.post("/reservations/after", {"ttlSeconds": 3600}).status == 201, 3)
    wait_for_expired(server.database, len(due), 5)
    log = check_invariants(server.database)
    assert log.events.keys() == {*due, *held, "after"}
    assert all(log.topics(name) == HELD_AND_EXPIRED for name in due)
    assert {line["retryCount"] for line in server.alarm_lines()} <= {0}, "it cost an attempt"


@pytest.mark.parametrize("disk", [SmallDisk], indirect=True)
def test_f22_on_a_full_disk_readyz_says_so_until_there_is_room(disk, make_server):
    server = make_server().start()
    server.hold("before", 3600)
    disk.fill(server)
    assert server.post("/reservations/refused", {"ttlSeconds": 3600}).status == 507

    time.sleep(2.2)  # in which the alarm clock has looked twice, and found nothing due

    assert server.get("/readyz").status == 503
    disk.empty(server)
    wait_for(lambda: server.get("/readyz").status == 200, 3)
