"""What `GET /metrics` tells: of one process, of several, and of the database."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from reservation_expiry.api.http import create_app
from reservation_expiry.api.metrics import PREFIX
from reservation_expiry.infrastructure import application as application_module
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreUnavailable
from reservation_expiry.infrastructure.measures import Tally
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.activity import Activity
from tests.conftest import MakeServer
from tests.support.clients import connections, read_all, request_head
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.http import hold_all
from tests.support.server import Server, wait_for

HOLDS, CONNECTIONS = 1_000, 20
SCRAPES = 30  # each on a connection of its own, which any of three workers may get
TTL = b'{"ttlSeconds":600}'
MADE = 'http_requests_total{method="POST",route="/reservations/<name:name>",status="201"}'
Samples = dict[str, float]
"""{name with its labels, without our prefix: value}"""


def samples(text: str) -> Samples:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    parts = [line.rsplit(" ", 1) for line in lines]
    return {name.removeprefix(PREFIX): float(value) for name, value in parts}


def told(client: FlaskClient) -> Samples:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.content_type.startswith("text/plain; version=")
    return samples(answer.text)


def told_anew(application: ReservationApplication) -> Samples:
    """As by a process that has not asked the database yet."""
    application._counted = None
    return told(create_app(application).test_client())


def test_the_gauges_of_the_database_are_counted(
    application: ReservationApplication, address: Address, clock: ManualClock
) -> None:
    hold_all(application, "abc", "def", "ghi")
    found = told_anew(application)
    assert (found["database_up"], found["open_holds"], found["log_head"]) == (1, 3, 6)
    assert (found["alarms_overdue"], found["alarms_oldest_overdue_seconds"]) == (0, 0)
    clock.advance(60_000)
    assert told_anew(application)["alarms_overdue"] == 3
    clock.advance(90_000)
    sql(address, "UPDATE alarms SET next_run_time = NULL WHERE id = 'reservation/abc'")
    found = told_anew(application)
    assert (found["alarms_overdue"], found["alarms_parked"]) == (2, 1)
    assert found["alarms_oldest_overdue_seconds"] == found["alarm_backlog_seconds"] == 90


def test_the_database_is_not_asked_at_every_scrape(
    application: ReservationApplication, client: FlaskClient
) -> None:
    hold_all(application, "abc")
    assert told(client)["open_holds"] == 1
    hold_all(application, "def")
    found = told(client)
    assert (found["open_holds"], found["holds_total"]) == (1, 2)


def test_without_the_database_the_rest_is_told(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise StoreUnavailable("no connection")

    hold_all(application, "abc")
    monkeypatch.setattr(Activity, "census", lost)
    found = told_anew(application)
    assert (found["database_up"], found["holds_total"]) == (0, 1)
    assert "open_holds" not in found


def test_what_was_not_counted_is_not_asked_for_again_at_once(
    application: ReservationApplication, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []

    def lost(*_: object) -> None:
        asked.append(None)
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(Activity, "census", lost)
    for _ in range(3):
        assert told(client)["database_up"] == 0
    assert len(asked) == 1


def test_a_database_that_counts_for_ever_is_not_waited_for(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(application_module, "CENSUS_SECONDS", 0.01)
    monkeypatch.setattr(Activity, "census", lambda *_: goes_on.wait(10))
    try:
        assert told_anew(application)["database_up"] == 0
    finally:
        goes_on.set()


def test_holds_and_attempts_are_counted_by_how_they_end(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock
) -> None:
    hold_all(application, "abc", "def")
    clock.advance(60_020)
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
    found = told(client)
    assert found["holds_total"] == found['holds_ended_total{ending="expired"}'] == 2
    assert found['holds_ended_total{ending="released"}'] == 0
    assert found['alarm_attempts_total{outcome="ok"}'] == 2
    assert found["alarm_lateness_seconds_sum"] == pytest.approx(0.04)
    assert found['alarm_lateness_seconds_bucket{le="0.01"}'] == 0
    assert found['alarm_lateness_seconds_bucket{le="0.025"}'] == 2
    assert found["batch_commands_sum"] == found["commit_seconds_count"] == 4
    assert told(client)["holds_total"] == 2


def test_what_is_at_a_bound_is_below_it() -> None:
    tally = Tally((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        tally.observe(value)
    assert (tally.counts, tally.sum) == ([2, 2, 1], 7.5)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three workers, with the folder of their counters below `folder`."""
    folder = tmp_path_factory.mktemp("three")
    server = Server(folder, "--workers", "3", env={"TMPDIR": str(folder)}).start()
    try:
        yield server
        assert server.stop() == 0
        assert not list(folder.glob("reservation-expiry-metrics-*"))
    finally:
        server.ensure_gone()


def hold_over(server: Server, tag: str, holds: int) -> None:
    """So many holds over so many connections, each with its requests one behind the other."""
    with connections(server.port, CONNECTIONS) as opened:
        each = holds // CONNECTIONS
        for number, connection in enumerate(opened):
            paths = [f"/reservations/{tag}-{number}-{i}" for i in range(each)]
            length = f"Content-Length: {len(TTL)}"
            heads = [request_head("POST", path, length) + TTL for path in paths]
            last = request_head("GET", "/healthz", "Connection: close")
            connection.sendall(b"".join([*heads, last]))
        answered = sum(read_all(connection).count(b"HTTP/1.1 201") for connection in opened)
    assert answered == each * CONNECTIONS


def scrape(server: Server) -> Samples:
    return samples(server.get("/metrics").body.decode())


def counts(server: Server, number: int) -> bool:
    return all(found["holds_total"] == found[MADE] == number for found in scrapes(server))


def scrapes(server: Server) -> list[Samples]:
    return [scrape(server) for _ in range(SCRAPES)]


@pytest.mark.real_time
def test_three_workers_add_up_whichever_answers_and_whichever_dies(three: Server) -> None:
    hold_over(three, "first", HOLDS)
    wait_for(lambda: scrape(three)["holds_total"] == HOLDS, 5)
    wait_for(lambda: counts(three, HOLDS), 5)
    [folder] = three.folder.glob("reservation-expiry-metrics-*")
    victim = three.worker_pids()[0]
    assert (folder / f"gauge_livesum_{victim}.db").exists()
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len({*three.worker_pids()} - {victim}) == 3, 10)
    three.wait_until_ready()
    assert not (folder / f"gauge_livesum_{victim}.db").exists()
    hold_over(three, "second", 20)
    wait_for(lambda: counts(three, HOLDS + 20), 5)


@pytest.mark.real_time
def test_requests_are_counted_by_route_and_not_by_path(three: Server) -> None:
    for path in ("/reservations/seat-1", "/reservations/seat-1?a=b", "/nobody/knows", "/%2e/x"):
        three.get(path)
    three.request("PROPFIND", "/events")
    expected = {
        'http_requests_total{method="GET",route="(none)",status="400"}',
        'http_requests_total{method="other",route="/events",status="405"}',
        'http_requests_total{method="GET",route="/reservations/<name:name>",status="200"}',
    }
    wait_for(lambda: scrape(three).keys() >= expected, 5)
    names = " ".join(scrape(three))
    assert not [word for word in ("seat", "nobody", "PROPFIND") if word in names]


@pytest.mark.real_time
def test_promtool_finds_nothing_wrong_with_the_metrics(three: Server) -> None:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI"):
            raise FileNotFoundError(
                "promtool is not installed (Debian: apt-get install prometheus)"
            )
        pytest.skip("NOT TESTED: promtool is not installed (Debian: apt-get install prometheus)")
    text = three.get("/metrics").body
    checked = subprocess.run([found, "check", "metrics"], input=text, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_parent_does_not_load_what_every_process_would_begin_with() -> None:
    code = "import sys, reservation_expiry.api.server, reservation_expiry.api.cli.serve;"
    code += "print('prometheus_client' in sys.modules)"
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.real_time
def test_a_service_removes_what_one_that_was_killed_has_left(
    make_server: MakeServer, tmp_path: Path
) -> None:
    def folders() -> list[str]:
        return [path.name for path in tmp_path.glob("reservation-expiry-metrics-*")]

    (tmp_path / "reservation-expiry-metrics-of-others").mkdir()
    server = make_server(env={"TMPDIR": str(tmp_path)}).start()
    (made,) = set(folders()) - {"reservation-expiry-metrics-of-others"}
    server.kill()
    server.start()
    assert made not in folders()
    assert len(folders()) == 2
    assert server.stop() == 0
    assert folders() == ["reservation-expiry-metrics-of-others"]
