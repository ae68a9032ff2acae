"""kill -9, while nothing runs or at a chosen point, and a lost table: what must still be true.

Real servers in processes of their own. The numbers in the test names are those of the
list of faults; faults inside a transaction are built in by launcher.py.
"""

import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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
    wait_for_expired,
)
from tests.support.database import sql
from tests.support.invariants import Log, alarms, check_invariants
from tests.support.server import Answer, Server, wait_for

pytestmark = pytest.mark.real_time

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
    answer: Answer | None = None
    try:
        if fault.point in HOLDS:
            server.start()
            for _ in range(10):  # a machine that is busy may say 503
                answer = None
                with suppress(OSError):
                    answer = server.post("/reservations/one", {"ttlSeconds": 5})
                if answer is None or answer.status != 503:
                    break
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


def is_expired(state: dict) -> dict | None:
    return state if state["status"] == "expired" else None
