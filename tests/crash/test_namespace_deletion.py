"""A namespace is deleted while it is served, under load, and while a server of it is frozen."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.namespaces import declare, delete
from reservation_expiry.infrastructure.stores.address import Address, namespaced
from tests.support.clients import HOLD
from tests.support.database import sql
from tests.support.logs import verified
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time

GONE = b'{"status":"deleted"}'


@pytest.fixture
def three(
    tmp_path: Path, new_address: Callable[[], Address]
) -> Iterator[tuple[list[Address], list[Server]]]:
    """Three logs, each served; the first two are namespaces beside the third, in the words of
    whoever deletes them."""
    addresses = [new_address() for _ in range(3)]
    servers = []
    for number, address in enumerate(addresses):
        declare(address)
        folder = tmp_path / str(number)
        folder.mkdir()
        servers.append(Server(folder, "--log-level", "warning", database=address))
    try:
        for server in servers:
            server.start()
        yield addresses, servers
    finally:
        for server in servers:
            server.ensure_gone()


class Load:
    """Holds at a server, one after the other, until the block ends."""

    def __init__(self, server: Server) -> None:
        self.statuses: list[int] = []
        self._server = server
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ends.is_set():
            path = f"/reservations/load-{len(self.statuses)}"
            self.statuses.append(self._server.request("POST", path, HOLD).status)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def test_namespace_delete_under_load_ends_one_and_leaves_the_others(
    three: tuple[list[Address], list[Server]],
) -> None:
    addresses, servers = three
    with Load(servers[0]) as first, Load(servers[1]) as doomed, Load(servers[2]) as last:
        wait_for(lambda: min(len(one.statuses) for one in (first, doomed, last)) > 20, 20)
        delete(addresses[1])
        deleted_at = time.monotonic()
        wait_for(lambda: servers[1].get("/reservations/load-1").status == 410, 2)
        assert time.monotonic() - deleted_at < 1.5, "within a second, and a request"
        wait_for(lambda: doomed.statuses[-1] == 410, 2)
    assert servers[1].get("/readyz").status == 410
    assert servers[1].get("/events").body == GONE
    assert servers[1].get("/healthz").status == 200
    assert set(first.statuses) == set(last.statuses) == {201}
    assert set(doomed.statuses) == {201, 410}
    assert sql(addresses[1], "SELECT count(*) FROM events") == [(0,)]
    for number, load in ((0, first), (2, last)):
        assert servers[number].stop() == 0
        report = verified(addresses[number])
        assert (report.found, report.events) == (0, 2 * len(load.statuses))
    assert servers[1].stop() == 0


def test_namespace_delete_while_a_server_is_frozen_leaves_nothing_for_it_to_write(
    three: tuple[list[Address], list[Server]],
) -> None:
    addresses, servers = three
    frozen, address = servers[0], addresses[0]
    frozen.hold("seat-1", 5)
    (pid,) = frozen.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    try:
        delete(address)
        time.sleep(5.2)  # seat-1 comes due meanwhile
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: frozen.get("/reservations/seat-1").status == 410, 5)
    assert frozen.request("POST", "/reservations/seat-2", HOLD).status == 410
    time.sleep(1.5)
    for table in ("events", "alarms", "reservations", "owners", "servers"):
        assert sql(address, f"SELECT count(*) FROM {table}") == [(0,)]
    assert frozen.alarm_lines() == []


def test_a_namespace_that_is_begun_anew_is_not_the_one_that_is_still_served(
    tmp_path: Path,
) -> None:
    address = namespaced(tmp_path / "reservations.db", "blue")
    declare(address)
    server = Server(tmp_path, database=address).start()
    try:
        before = server.get("/events").json()["logId"]
        delete(address)
        declare(address)
        assert server.request("POST", "/reservations/seat-1", HOLD).status == 410
        assert server.stop() == 0
        server.start()
        assert server.get(f"/events?log={before}").status == 409
        assert server.get("/events").json()["logId"] != before
    finally:
        server.ensure_gone()
