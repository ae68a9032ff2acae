"""Several processes on one file, a lock held from outside, a burst; and how it ends.

Real servers in processes of their own. The numbers in the test names are those of the
list of faults; what has none is about starting and stopping.
"""

import http.client
import json
import os
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.startup import prepare
from tests.crash.staging import (
    expired_count,
    hold_in,
    now_ms,
    read_answer,
    run_serve,
    send_hold,
    wait_for_expired,
)
from tests.support.database import locked, sql
from tests.support.invariants import alarms, check_invariants
from tests.support.server import Answer, Server, free_port, wait_for

pytestmark = pytest.mark.real_time

HELD_AND_EXPIRED = ["Held", "AlarmScheduled", "Expired"]
MORE_THAN_THERE_ARE_THREADS = 60
NEWER_SCHEMA = 99
MEMORY_GROWTH_LIMIT_KIB = 50 * 1024


def test_f7_four_processes_on_one_database_expire_1000_holds_once_each(make_server_on_either):
    servers = [make_server_on_either("--workers", "2") for _ in range(2)]
    for server in servers:
        server.start()
    workers = [server.worker_pids() for server in servers]
    names = [f"seat-{number}" for number in range(1_000)]

    with ThreadPoolExecutor(16) as pool:
        shares = [(servers[share % 2], names[share::16]) for share in range(16)]
        statuses = chain.from_iterable(pool.map(lambda share: hold_all(*share), shares))
        assert Counter(statuses) == {201: 1_000}

    wait_for_expired(servers[0].database, 1_000, 15)
    for server in servers:
        answers = [server.get("/readyz") for _ in range(20)]  # each reaches either worker
        assert {answer.status for answer in answers} == {200}, answers
    assert [server.worker_pids() for server in servers] == workers
    log = check_invariants(servers[0].database)
    assert log.counts() == {"Held": 1_000, "AlarmScheduled": 1_000, "Expired": 1_000}
    assert all(log.topics(name) == HELD_AND_EXPIRED for name in names)
    lines = servers[0].alarm_lines() + servers[1].alarm_lines()
    assert Counter(line["outcome"] for line in lines) == {"ok": 1_000}
    assert {line["reservationId"] for line in lines} == set(names)


def test_f8_a_lock_held_from_outside_while_alarms_fall_due_delays_and_kills_nothing(
    make_server_on_either,
):
    due = [f"due-{number}" for number in range(50)]
    early = [f"early-{number}" for number in range(MORE_THAN_THERE_ARE_THREADS)]
    late = [f"late-{number}" for number in range(MORE_THAN_THERE_ARE_THREADS)]
    server = make_server_on_either().start()
    workers = server.worker_pids()
    hold_in(server.database, due, due_at_ms=now_ms() + 1_500)
    readiness: list[tuple[float, int]] = []  # (seconds since the lock, status)
    waits: list[float] = []

    with locked(server.database):
        began = time.monotonic()
        flights = {name: send_hold(server, name) for name in early}
        while (since := time.monotonic() - began) < 8:
            took, answer = timed(lambda: server.get("/readyz"))
            readiness.append((since, answer.status))
            waits.append(took)
            took, answer = timed(lambda: server.get("/reservations/due-1"))
            assert answer.json()["status"] == "held"
            waits.append(took)
            if since > 5.5 and late[0] not in flights:  # within any wait of the lock's end
                flights |= {name: send_hold(server, name) for name in late}
            time.sleep(0.1)
    answers = {name: read_answer(flight) for name, flight in flights.items()}

    wait_for_expired(server.database, len(due), 5)
    assert server.worker_pids() == workers
    assert max(waits) < 2, "a read or a look at /readyz had to wait for the lock"
    assert {status for since, status in readiness if since > 3.5} == {503}
    kept = {name for name, answer in answers.items() if b" 201 " in answer[:20]}
    told_to_come_back = {
        name
        for name, answer in answers.items()
        if b" 503 " in answer[:20] and b"retry-after: " in answer
    }
    assert kept | told_to_come_back == {*early, *late}
    assert kept >= set(late)
    wait_for(lambda: server.get("/readyz").status == 200, 3)
    log = check_invariants(server.database)
    assert all(log.topics(name) == HELD_AND_EXPIRED for name in due)
    assert log.events.keys() == {*due, *kept}
    assert {line["retryCount"] for line in server.alarm_lines()} == {0}, "it cost an attempt"


def test_f17_ten_thousand_holds_due_in_one_second_expire_in_flat_memory_beside_requests(
    make_server_on_either,
):
    names = [f"mass-{number}" for number in range(10_000)]
    server = make_server_on_either().start()
    (worker,) = server.worker_pids()
    server.hold("warm-up", 3600)
    hold_in(server.database, names, due_at_ms=now_ms() + 3_000)
    before_kib = peak_kib = resident_kib(worker)

    with in_the_background(lambda: use(server)) as statuses:
        deadline = time.monotonic() + 20
        while not (done := all_expired(server, len(names))) and time.monotonic() < deadline:
            peak_kib = max(peak_kib, resident_kib(worker))
            time.sleep(0.02)
        time.sleep(0.5)
    peak_kib = max(peak_kib, resident_kib(worker))

    assert done
    assert statuses.keys() == {200, 201}
    assert statuses[201] >= 20
    assert peak_kib - before_kib < MEMORY_GROWTH_LIMIT_KIB
    assert server.worker_pids() == [worker]
    log = check_invariants(server.database)
    assert all(log.topics(name) == HELD_AND_EXPIRED for name in names)


def test_f7_and_f10_an_alarm_delivered_again_or_early_expires_nothing(make_server_on_either):
    server = make_server_on_either().start()
    # The first sweep, which begins with this row, would mend what is made inconsistent below.
    wait_for(lambda: sql(server.database, "SELECT count(*) FROM servers") == [(1,)], 10)
    hold_in(server.database, ["ended"], due_at_ms=now_ms() - 1_000)
    hold_in(server.database, ["open"], due_at_ms=now_ms() + 3_600_000)
    wait_for_expired(server.database, 1, 10)
    early = alarms(server.database)["open"]

    # An inconsistent row for a hold that has ended; and the open hold's alarm, an hour too soon.
    stray = "INSERT INTO alarms SELECT 'reservation/ended', 1, job_state FROM alarms"
    sql(server.database, stray)
    sql(server.database, "UPDATE alarms SET next_run_time = 1")

    wait_for(lambda: Counter(line["outcome"] for line in server.alarm_lines())["rejected"] == 2, 10)
    log = check_invariants(server.database)
    assert log.topics("ended") == HELD_AND_EXPIRED
    assert log.topics("open") == ["Held", "AlarmScheduled"]
    assert alarms(server.database) == {"open": early}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_as_a_terminal_sends_it_to_all_processes_ends_with_0(make_server, workers):
    server = make_server("--workers", workers).start()
    server.hold("seat-1", 3600)

    os.killpg(server.process.pid, signal.SIGINT)

    assert server.process.wait(10) == 0
    assert "Traceback" not in server.err.read_text()
    assert check_invariants(server.database).topics("seat-1") == ["Held", "AlarmScheduled"]


def a_parent_that_is_a_file(folder: Path) -> Path:
    (folder / "file").write_text("not a folder")
    return folder / "file" / "reservations.db"


def a_folder_that_takes_no_files(folder: Path) -> Path:
    return Path("/proc/self/reservations.db")  # refused to root as well


def a_text_file(folder: Path) -> Path:
    path = folder / "notes.txt"
    path.write_text("dear diary " * 1_000)
    return path


def a_database_of_another_program(folder: Path) -> Path:
    path = folder / "other.db"
    alter(path, "CREATE TABLE people (name TEXT)")
    return path


def a_newer_schema(folder: Path) -> Path:
    path = folder / "newer.db"
    prepare(path)
    alter(path, f"PRAGMA user_version = {NEWER_SCHEMA}")
    return path


def a_log_without_its_end(folder: Path) -> Path:
    path = folder / "damaged.db"
    hold_in(path, ["seat-1", "seat-2"], due_at_ms=now_ms() + 60_000)
    alter(path, "DELETE FROM events WHERE position > 2")
    return path


UNUSABLE = [
    a_parent_that_is_a_file,
    a_folder_that_takes_no_files,
    a_text_file,
    a_database_of_another_program,
    a_newer_schema,
    a_log_without_its_end,
]


@pytest.mark.parametrize("make", UNUSABLE, ids=lambda make: make.__name__)
def test_a_database_that_must_not_be_used_is_refused_with_a_sentence_and_left_alone(tmp_path, make):
    serving, checking = tmp_path / "serving", tmp_path / "checking"
    paths = []
    for folder in (serving, checking):
        folder.mkdir()
        paths.append(make(folder))
    served_before = contents(serving, exactly=False)
    checked_before = contents(checking)

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(run_serve, paths, ["--no-replay-route", "--check"]))

    for ended in ends:
        assert ended.returncode == 3
        assert ended.stdout == ""
        assert is_one_sentence(ended.stderr)
    assert contents(serving, exactly=False) == served_before
    assert contents(checking) == checked_before


@pytest.mark.parametrize("port", ["0", "http"])
def test_a_port_that_is_none_is_refused_as_a_usage_error(tmp_path, port):
    ended = run_serve(tmp_path / "reservations.db", "--port", port)

    assert ended.returncode == 2
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert contents(tmp_path) == {}


def test_check_says_that_a_database_will_be_made_and_makes_none(tmp_path):
    port = free_port()

    ended = run_serve(tmp_path / "reservations.db", "--check", port=port)

    assert ended.returncode == 0
    assert "will be created" in ended.stdout
    assert contents(tmp_path) == {}
    assert not is_listening(port)


def test_check_says_that_a_good_database_is_ready_and_changes_nothing(tmp_path):
    path = tmp_path / "reservations.db"
    hold_in(path, ["overdue"], due_at_ms=now_ms() - 1_000)
    before = contents(tmp_path)
    port = free_port()

    ended = run_serve(path, "--check", port=port)

    assert ended.returncode == 0
    assert "ready" in ended.stdout
    assert contents(tmp_path) == before
    assert not is_listening(port)


def test_check_says_that_lost_alarms_will_be_rebuilt_and_rebuilds_none(tmp_path):
    path = tmp_path / "reservations.db"
    hold_in(path, ["overdue"], due_at_ms=now_ms() - 1_000)
    alter(path, "DELETE FROM alarms")
    before = contents(tmp_path)

    ended = run_serve(path, "--check")

    assert ended.returncode == 0
    assert "rebuilt" in ended.stdout
    assert contents(tmp_path) == before


def hold_all(server: Server, names: list[str]) -> list[int]:
    """Holds them for 5 s over one connection that is kept. The statuses."""
    statuses = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for name in names:
        connection.request("POST", f"/reservations/{name}", json.dumps({"ttlSeconds": 5}))
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    return statuses


def use(server: Server) -> Iterator[int]:
    """Reads and creates, for ever. The status of each answer."""
    number = 0
    while True:
        number += 1
        yield server.get(f"/reservations/mass-{number}").status
        yield server.get("/reservations?limit=10").status
        yield server.post(f"/reservations/new-{number}", {"ttlSeconds": 3600}).status


@contextmanager
def in_the_background(make: Callable[[], Iterator[int]]) -> Iterator[Counter[int]]:
    """Counts what the iterator yields until the block ends. Its error is the test's."""
    counted: Counter[int] = Counter()
    stopping = threading.Event()

    def run() -> None:
        for status in make():
            counted[status] += 1
            if stopping.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run)
        try:
            yield counted
        finally:
            stopping.set()
        future.result()


def timed(call: Callable[[], Answer]) -> tuple[float, Answer]:
    began = time.monotonic()
    answer = call()
    return time.monotonic() - began, answer


def all_expired(server: Server, count: int) -> bool:
    return expired_count(server.database) >= count


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def is_one_sentence(text: str) -> bool:
    return (
        text.startswith("reservation-expiry: ")
        and text.count("\n") == 1
        and "Traceback" not in text
    )


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def contents(folder: Path, *, exactly: bool = True) -> dict[str, bytes]:
    """{name: bytes} of the files; if not exactly, without SQLite's counts of changes."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    if exactly:
        return found
    return {name: data[:24] + data[28:92] + data[96:] for name, data in found.items()}


def alter(path: Path, script: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(script)
    connection.close()
