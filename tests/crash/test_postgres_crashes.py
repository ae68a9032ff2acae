"""A database server that restarts, fails over, is not there yet; a node whose clock is wrong.

Real servers in processes of their own: nodes and PostgreSQL. The numbers in the test
names are those of the list of faults.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cluster.load import Holding
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from tests.crash.staging import (
    hold_in,
    now_ms,
    run_serve,
    wait_for_expired,
)
from tests.support.database import sql
from tests.support.invariants import check_invariants
from tests.support.postgres import PostgresServer
from tests.support.server import COMMAND, Server, free_port, wait_for

pytestmark = pytest.mark.real_time

HELD_AND_EXPIRED = ["Held", "AlarmScheduled", "Expired"]
WRONG_CLOCK = [sys.executable, "-m", "tests.crash.wrong_clock"]
MINUTE_MS = 60_000


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that a test may stop and kill."""
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(database: PostgresAddress, *options: str, **keywords: object) -> Server:
        made.append(Server(tmp_path, *options, database=database, **keywords))
        return made[-1]

    yield make
    for server in made:
        server.ensure_gone()


def test_f9_a_restart_of_the_server_in_a_burst_loses_and_doubles_nothing(
    own_postgres: PostgresServer, make_node: Callable[..., Server]
) -> None:
    database = own_postgres.address("f9")
    nodes = [make_node(database).start() for _ in range(2)]
    pids = [node.worker_pids() for node in nodes]
    with Holding(*(node.port for node in nodes)).going_on() as holding:
        time.sleep(1)
        own_postgres.stop()
        time.sleep(1)
        own_postgres.start()
        before = len(holding.held)
        wait_for(lambda: len(holding.held) > before + 20, 10)
        own_postgres.kill()
        own_postgres.start()
        before = len(holding.held)
        wait_for(lambda: len(holding.held) > before + 20, 10)
    wait_for(lambda: {node.get("/readyz").status for node in nodes} == {200}, 10)
    assert holding.statuses.keys() == {201, 503}
    assert holding.without_retry_after == 0
    assert holding.slowest_seconds < 10
    wait_for(lambda: all_ended(database), 20, 0.2)
    log = check_invariants(database)
    assert holding.held <= log.events.keys() <= holding.asked
    assert all(log.topics(name) == HELD_AND_EXPIRED for name in log.events)
    assert [node.worker_pids() for node in nodes] == pids
    assert [node.stop() for node in nodes] == [0, 0]


def all_ended(database: PostgresAddress) -> bool:
    return sql(database, "SELECT count(*) FROM reservations WHERE status = 'held'") == [(0,)]


def test_a_standby_that_is_promoted_is_found_and_has_all_that_was_answered(
    make_node: Callable[..., Server],
) -> None:
    primary, standby = PostgresServer(), PostgresServer()
    try:
        primary.start()
        standby.copy_of(primary)
        standby.start()
        primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        is_synchronous = "SELECT sync_state FROM pg_stat_replication"
        wait_for(lambda: primary.run(is_synchronous) == [("sync",)], 10)
        address = primary.address("f")
        both = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        database = PostgresAddress(address.url.replace(f"127.0.0.1:{primary.port}", both))
        node = make_node(database).start()
        with Holding(node.port).going_on() as holding:
            wait_for(lambda: len(holding.held) > 50, 10)
            primary.kill()
            standby.run("SELECT pg_promote()")
            before = len(holding.held)
            wait_for(lambda: len(holding.held) > before + 20, 15)
        wait_for(lambda: all_ended(database), 20, 0.2)
        log = check_invariants(database)
        assert holding.held <= log.events.keys()
        assert all(log.topics(name) == HELD_AND_EXPIRED for name in log.events)
        assert node.stop() == 0
    finally:
        standby.remove()
        primary.remove()


def test_a_node_waits_for_a_server_that_is_not_there_yet_and_says_so(
    own_postgres: PostgresServer, make_node: Callable[..., Server]
) -> None:
    database = own_postgres.address("later")
    own_postgres.stop()
    checked = run_serve(database, "--check")
    assert checked.returncode == 3
    assert "Connection refused" in checked.stderr
    assert "Traceback" not in checked.stderr
    node = make_node(database).start(wait=False)
    wait_for(lambda: "waiting for postgresql://" in node.err.read_text(), 10)
    assert node.process.poll() is None
    own_postgres.start()
    node.wait_until_ready()
    assert node.hold("seat-1", 60)["status"] == "held"


def test_a_node_that_waits_for_its_server_ends_at_once_when_told_to(
    make_node: Callable[..., Server],
) -> None:
    nowhere = PostgresAddress(f"postgresql://nobody@127.0.0.1:{free_port()}/nothing")
    node = make_node(nowhere).start(wait=False)
    wait_for(lambda: "waiting for postgresql://" in node.err.read_text(), 10)
    assert node.stop(signal.SIGINT, timeout=5) != 0
    assert "Traceback" not in node.err.read_text()


def test_a_node_that_the_server_refuses_for_good_ends_with_a_sentence(
    postgres: PostgresServer,
) -> None:
    ended = run_serve(PostgresAddress(postgres.url(database="nowhere")))
    assert ended.returncode == 3
    assert 'database "nowhere" does not exist' in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("wrong_by_ms", [10 * MINUTE_MS, -10 * MINUTE_MS])
def test_a_node_whose_clock_is_ten_minutes_wrong_behaves_like_any_other(
    wrong_by_ms: int, postgres: PostgresServer, make_node: Callable[..., Server]
) -> None:
    database = postgres.address("clocks")
    node = make_node(database, command=WRONG_CLOCK, env={"WRONG_BY_MS": str(wrong_by_ms)}).start()
    before_ms = now_ms()
    held = node.hold("seat-1", 5)
    assert before_ms - 5 <= held["createdAt"] <= now_ms() + 5
    hold_in(database, ["due"], due_at_ms=now_ms() + 1_500)
    assert node.state("due")["status"] == "held"
    wait_for_expired(database, 2, 10)
    log = check_invariants(database)
    assert {name: log.topics(name) for name in log.events} == {
        "seat-1": HELD_AND_EXPIRED,
        "due": HELD_AND_EXPIRED,
    }
    lateness = [line["latenessMs"] for line in node.alarm_lines()]
    assert len(lateness) == 2
    assert all(0 <= late < 1_000 for late in lateness)
    assert node.stop() == 0


def test_no_process_shows_the_password_to_whoever_lists_them(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    own_postgres.run(
        "CREATE ROLE app LOGIN PASSWORD 's3cret'", "CREATE SCHEMA app AUTHORIZATION app"
    )
    own_postgres.demand_passwords_of("app")
    port = free_port()
    url = own_postgres.url(user="app:s3cret")
    command = [*COMMAND, "serve", "--port", str(port), "--database", url]
    with (
        (tmp_path / "out").open("wb") as out,
        (tmp_path / "err").open("wb") as err,
        subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True) as process,
    ):
        try:
            wait_for(lambda: "serving on" in (tmp_path / "out").read_text(), 15)
            wait_for(lambda: len(family(process.pid)) >= 2, 10)
            time.sleep(0.5)
            for pid in family(process.pid):
                assert b"s3cret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    said = (tmp_path / "out").read_text() + (tmp_path / "err").read_text()
    assert "postgresql://app@127.0.0.1" in said
    assert "s3cret" not in said
    wrong = run_serve(PostgresAddress(own_postgres.url(user="app:wr0ng")))
    assert wrong.returncode == 3
    assert "password authentication failed" in wrong.stderr
    assert "wr0ng" not in wrong.stderr


def family(pid: int) -> list[int]:
    """The process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]
