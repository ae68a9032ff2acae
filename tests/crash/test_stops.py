"""A stop in mid-flight, a killed worker, a killed parent, a port that is taken."""

import http.client
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reservation_expiry.infrastructure.settings import SHUTDOWN_GRACE_SECONDS
from reservation_expiry.infrastructure.stores.address import Address
from tests.crash.staging import (
    hold_in,
    is_running,
    now_ms,
    read_status,
    run_serve,
    send_hold,
    wait_for_expired,
)
from tests.support.database import CannotLock, locked
from tests.support.invariants import check_invariants
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time

ITS_CONNECTIONS_END_WITHIN_SECONDS = 0.5  # those that a killed worker had, or had queued


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
    idle.close()
    server.process.wait()
    assert server.start().state("seat-1")["status"] == "held"  # the port is free again
    check_invariants(server.database)


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
