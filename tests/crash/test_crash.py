"""kill -9, a lost table, a full disk, a stop in mid-flight: what must still be true.

Real servers in processes of their own. The numbers in the test names are those of the
list of faults; faults inside a transaction are built in by launcher.py.
"""

import http.client
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.alarms.dispatcher import LEASE_MS
from reservation_expiry.infrastructure.settings import SHUTDOWN_GRACE_SECONDS
from reservation_expiry.infrastructure.stores.address import Address
from tests.crash.staging import (
    LAUNCHER,
    copy_of,
    hold_in,
    hold_request,
    is_running,
    now_ms,
    read_status,
    run_serve,
    send_hold,
    wait_for_expired,
)
from tests.support.database import CannotLock, locked, sql
from tests.support.invariants import Log, alarms, check_invariants
from tests.support.server import Answer, Server, wait_for

pytestmark = pytest.mark.real_time

ITS_CONNECTIONS_END_WITHIN_SECONDS = 0.5  # those that a killed worker had, or had queued
SERVERS_AT_ONCE = 6
CRASH_SECONDS = 15  # for a fault to strike, on a busy machine
HELD = ["Held", "AlarmScheduled"]
HELD_AND_EXPIRED = [*HELD, "Expired"]


def test_f1_a_hold_that_fell_due_while_nothing_ran_expires_within_a_second_of_the_start(
    make_server_on_either,
):
    server = make_server_on_either("--workers", "2").start()
    due_at_ms = server.hold("short", 5)["expiresAt"]
    long = server.hold("long", 3600)
    time.sleep(1)
    server.kill()
    long_alarm = alarms(server.database)["long"]
    time.sleep((due_at_ms - now_ms()) / 1000 + 1)

    started_ms = now_ms()
    server.start()
    expired = wait_for(lambda: is_expired(server.state("short")), 1)

    assert started_ms <= expired["expiredAt"] <= now_ms()
    assert (expired["expirationCount"], expired["alarmAt"]) == (1, None)
    assert server.state("long") == long
    assert alarms(server.database) == {"long": long_alarm}
    log = check_invariants(server.database)
    assert log.topics("short") == HELD_AND_EXPIRED


# What a kill at each point leaves: the events, and of the alarm the attempts begun and
# whether it is claimed, or None where there is no alarm.
STATE_AFTER = {
    "before-commit hold": ([], None, None),
    "after-commit hold": (HELD, 0, False),
    "before-commit claim": (HELD, 0, False),
    "after-commit claim": (HELD, 1, True),
    "before-commit settlement": (HELD, 1, True),
    "after-commit settlement": (HELD_AND_EXPIRED, None, None),
}
HOLDS = [point for point in STATE_AFTER if point.endswith("hold")]
ALARMS = [point for point in STATE_AFTER if point not in HOLDS]


@dataclass(frozen=True)
class Fault:
    point: str
    victim: str = "server"
    times: int = 1


DIES_TWICE = Fault("before-commit settlement", "worker", times=2)
FAULTS = [*map(Fault, STATE_AFTER), *(Fault(point, "worker") for point in ALARMS), DIES_TWICE]


@dataclass
class Crash:
    """A crash and what came after it."""

    answer: Answer | None  # what the client heard of its hold, None if nothing
    log: Log  # as the crash left it
    alarm: AlarmSlot | None
    look_again_in_ms: float | None  # as the alarm's row says, counted from the crash
    log_in_the_end: Log
    exit_code: int


@dataclass
class Background:
    """What ran at once because it mostly waits; what went wrong in one is its test's."""

    crashes: dict[Fault, Future[Crash]]
    orphan_ended_after: Future[float]  # seconds


@pytest.fixture(scope="module")
def background(
    store: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Background:
    def folder() -> Path:
        return tmp_path_factory.mktemp("background")

    def database(folder: Path) -> Address:
        if store == "sqlite":
            return folder / "reservations.db"
        return request.getfixturevalue("postgres").address(folder.name)

    places = [(place, database(place)) for place in [folder() for _ in FAULTS]]
    with ThreadPoolExecutor(SERVERS_AT_ONCE) as pool:
        crashes = zip(FAULTS, places, strict=True)
        orphan = pool.submit(orphan_a_worker_with_a_stalled_request, folder())
        return Background(
            {fault: pool.submit(crash, fault, *place) for fault, place in crashes}, orphan
        )


@pytest.fixture
def crash_of(background: Background) -> Callable[[Fault], Crash]:
    return lambda fault: background.crashes[fault].result()


def crash(fault: Fault, folder: Path, database: Address) -> Crash:
    """Runs into the fault, starts again if need be, and waits until the hold has expired."""
    marker = folder / "strikes"
    marker.touch()
    env = {
        "CRASH_POINT": fault.point,
        "CRASH_VICTIM": fault.victim,
        "CRASH_TIMES": str(fault.times),
        "CRASH_MARKER": str(marker),
    }
    server = Server(folder, command=LAUNCHER, env=env, database=database)
    answer = None
    try:
        if fault.point in HOLDS:
            server.start()
            with suppress(OSError):
                answer = server.post("/reservations/one", {"ttlSeconds": 5})
        else:
            hold_in(server.database, ["one"], due_at_ms=now_ms())
            server.start(wait=False)
        wait_for(lambda: marker.stat().st_size == fault.times, CRASH_SECONDS)
        if fault.victim == "server":
            assert server.process.wait(CRASH_SECONDS) == -signal.SIGKILL
        left = copy_of(server.database, folder / "left")
        log, alarm = check_invariants(left), alarms(left).get("one")
        if fault.victim == "server":
            server.start()
        server.wait_until_ready()
        if server.state("one")["status"] == "missing":
            server.hold("one", 5)
        wait_for(lambda: is_expired(server.state("one")), CRASH_SECONDS, 0.1)
        exit_code = server.stop()
        state = alarm and alarm_row.decode(alarm[1])
        look_again_in_ms = alarm and (alarm[0] - marker.stat().st_mtime) * 1000
        log_in_the_end = check_invariants(server.database)
        return Crash(answer, log, state, look_again_in_ms, log_in_the_end, exit_code)
    finally:
        server.ensure_gone()


@pytest.mark.parametrize("point", STATE_AFTER)
def test_f2_a_kill_leaves_the_state_before_the_transaction_or_the_state_after_it(crash_of, point):
    found = crash_of(Fault(point))

    events, attempts, claimed = STATE_AFTER[point]
    assert found.log.topics("one") == events
    assert (found.alarm and found.alarm.attempts) == attempts
    assert (found.alarm and found.alarm.token is not None) == claimed
    assert not claimed or found.look_again_in_ms > LEASE_MS / 2


@pytest.mark.parametrize("point", HOLDS)
def test_f2_nobody_hears_of_a_hold_before_its_commit_is_over(crash_of, point):
    assert crash_of(Fault(point)).answer is None


@pytest.mark.parametrize("point", STATE_AFTER)
def test_f2_after_a_restart_the_hold_expires_exactly_once(crash_of, point):
    found = crash_of(Fault(point))

    assert found.log_in_the_end.topics("one") == HELD_AND_EXPIRED
    assert found.exit_code == 0


@pytest.mark.parametrize("point", ALARMS)
def test_f2_the_successor_of_a_killed_worker_ends_what_it_began(crash_of, point):
    found = crash_of(Fault(point, "worker"))

    assert found.log_in_the_end.topics("one") == HELD_AND_EXPIRED
    assert found.exit_code == 0


def test_f2_an_alarm_that_kills_its_worker_twice_is_retried_and_the_server_stays_up(crash_of):
    found = crash_of(DIES_TWICE)

    assert found.log_in_the_end.topics("one") == HELD_AND_EXPIRED
    assert found.exit_code == 0


@pytest.mark.parametrize("sabotage", ["DELETE FROM alarms", "DROP TABLE alarms"])
def test_f3_lost_alarms_are_rebuilt_from_the_log_before_anything_is_served(
    make_server_on_either, sabotage
):
    names = [f"seat-{number}" for number in range(20)]
    server = make_server_on_either()
    hold_in(server.database, names, due_at_ms=now_ms() + 2_000)
    hold_in(server.database, ["long"], due_at_ms=now_ms() + 3_600_000)
    sql(server.database, sabotage)

    server.start()

    check_invariants(server.database)
    assert "long" in alarms(server.database)
    assert "rebuilding" in server.err.read_text()
    assert "21 differences repaired" in server.err.read_text()
    wait_for_expired(server.database, len(names), 10)
    log = check_invariants(server.database)
    assert all(log.topics(name) == HELD_AND_EXPIRED for name in names)
    assert server.state("long")["status"] == "held"


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


def test_f24_a_stop_with_200_requests_in_flight_keeps_every_hold_it_answered_for(
    make_server_on_either,
):
    server = make_server_on_either().start()
    names = [f"flight-{number}" for number in range(200)]
    with locked(server.database):  # so that none can be answered before the signal
        flights = {name: send_hold(server, name) for name in names}
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    signalled = time.monotonic()
    statuses = {name: read_status(flight) for name, flight in flights.items()}
    exit_code = server.process.wait(SHUTDOWN_GRACE_SECONDS)

    assert exit_code == 0
    assert time.monotonic() - signalled < SHUTDOWN_GRACE_SECONDS
    log = check_invariants(server.database)
    answered = {name for name, status in statuses.items() if status == 201}
    assert answered == log.events.keys()
    assert len(answered) >= 40, "those that waited for the writer should have been served"
    assert set(statuses.values()) <= {201, 503, None}
    with pytest.raises(OSError):
        server.get("/healthz")


def test_f32_when_one_worker_is_killed_the_other_serves_on_and_it_comes_back(make_server_on_either):
    server = make_server_on_either("--workers", "2").start()
    first, second = server.worker_pids()

    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    while (since := time.monotonic() - killed) < 2:
        try:
            assert server.get("/reservations/anything").status == 200
        except OSError:
            assert since < ITS_CONNECTIONS_END_WITHIN_SECONDS
    pids = wait_for(lambda: len(server.worker_pids()) == 2 and server.worker_pids(), 5)
    (newcomer,) = set(pids) - {second}
    assert second in pids

    # The newcomer does its work: it answers and expires with nobody beside it.
    hold_in(server.database, ["due"], due_at_ms=now_ms() + 500)
    with paused(second, server.database):
        wait_for(lambda: hold_at_once(server, "later"), 10)
        wait_for_expired(server.database, 1, 10)
    assert is_running(newcomer)
    assert server.stop() == 0
    check_invariants(server.database)


def test_f32_when_the_parent_is_killed_no_worker_serves_after_two_seconds(make_server_on_either):
    server = make_server_on_either("--workers", "2").start()
    server.hold("seat-1", 3600)
    workers = server.worker_pids()
    idle = http.client.HTTPConnection("127.0.0.1", server.port)  # a kept connection, too
    idle.request("GET", "/healthz")
    idle.getresponse().read()

    os.kill(server.process.pid, signal.SIGKILL)
    time.sleep(2)

    assert not any(map(is_running, workers))
    with pytest.raises(OSError):
        server.get("/healthz")
    idle.sock.settimeout(5)
    assert idle.sock.recv(1) == b"", "the kept connection is still open"
    server.process.wait()
    assert server.start().state("seat-1")["status"] == "held"  # the port is free again
    check_invariants(server.database)


def test_f32_when_the_parent_is_killed_a_stalled_request_keeps_no_worker_beyond_the_grace(
    background,
):
    assert background.orphan_ended_after.result() < SHUTDOWN_GRACE_SECONDS + 2


def orphan_a_worker_with_a_stalled_request(folder: Path) -> float:
    """Kills the parent while a client has sent half a request. Seconds until all is gone."""
    server = Server(folder).start()
    (worker,) = server.worker_pids()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as stalled:
            stalled.sendall(hold_request("stalled")[:-1])
            time.sleep(0.2)
            os.kill(server.process.pid, signal.SIGKILL)
            began = time.monotonic()
            wait_for(lambda: not is_running(worker), SHUTDOWN_GRACE_SECONDS + 2)
            return time.monotonic() - began
    finally:
        server.ensure_gone()


def test_f33_a_second_server_on_the_port_is_refused_with_a_sentence(make_server, tmp_path):
    first = make_server("--workers", "2").start()
    workers = first.worker_pids()
    other = tmp_path / "other.db"

    second = run_serve(other, port=first.port)

    assert second.returncode == 4
    assert second.stderr.strip().count("\n") == 0
    assert f"cannot listen on 127.0.0.1:{first.port}" in second.stderr
    assert "Traceback" not in second.stderr
    assert not other.exists()
    names = [f"seat-{number}" for number in range(50)]
    for name in names:
        first.hold(name, 3600)
    assert first.worker_pids() == workers
    assert check_invariants(first.database).events.keys() == set(names)


def is_expired(state: dict) -> dict | None:
    return state if state["status"] == "expired" else None


@contextmanager
def paused(pid: int, address: Address) -> Iterator[None]:
    """Stops the process where it stands, but not where it holds the log's lock."""
    os.kill(pid, signal.SIGSTOP)
    while not can_lock(address):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def can_lock(address: Address) -> bool:
    try:
        with locked(address, timeout=0.2):
            return True
    except CannotLock:
        return False


def hold_at_once(server: Server, name: str) -> bool:
    """Whether a hold over a new connection is answered soon; it is not by a paused worker."""
    flight = send_hold(server, name)
    flight.settimeout(0.5)
    return read_status(flight) == 201
