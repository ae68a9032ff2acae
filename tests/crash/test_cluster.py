"""Several nodes behind one address, on one database and on two.

HAProxy is a program that a machine may lack; what is not tested then is said.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.cluster.haproxy import HAProxy, NoProxy
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from tests.contract.replayer import address_of, load, replay
from tests.support.clients import exchange, request_head
from tests.support.invariants import check_invariants
from tests.support.postgres import PostgresServer
from tests.support.server import Server

pytestmark = pytest.mark.real_time

Groups = list[list[Server]]


@pytest.fixture
def serve_behind_a_proxy(tmp_path: Path) -> Iterator[Callable[..., tuple[HAProxy, Groups]]]:
    """Starts so many nodes on each database, and a proxy in front of them all."""
    groups: Groups = []
    proxies: list[HAProxy] = []

    def serve(nodes: int, *databases: PostgresAddress) -> tuple[HAProxy, Groups]:
        for database in databases:
            made = [Server(tmp_path, database=database) for _ in range(nodes)]
            groups.append(made)
            for node in made:
                node.start()
        try:
            proxies.append(HAProxy(tmp_path, [[node.port for node in of] for of in groups]))
        except NoProxy as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"NOT TESTED: {error}")
        return proxies[0].start(), groups

    yield serve
    for proxy in proxies:
        proxy.stop()
    for node in (node for of in groups for node in of):
        node.ensure_gone()


def test_three_nodes_behind_one_address_answer_as_recorded(
    postgres: PostgresServer, serve_behind_a_proxy: Callable[..., tuple[HAProxy, Groups]]
) -> None:
    database = postgres.address("cluster_contract")
    proxy, ((*nodes,),) = serve_behind_a_proxy(3, database)
    cases = [case for case in load() if not case.get("platform")]  # HAProxy's own are others
    mismatches = replay(cases, address_of(proxy.url))
    assert {case: wrong for case, wrong in mismatches.items() if wrong} == {}
    check_invariants(database)
    assert [node.stop() for node in nodes] == [0, 0, 0]


def test_each_reservation_is_always_on_the_same_one_of_two_shards(
    postgres: PostgresServer, serve_behind_a_proxy: Callable[..., tuple[HAProxy, Groups]]
) -> None:
    databases = [postgres.address(f"shard_{number}") for number in range(2)]
    proxy, groups = serve_behind_a_proxy(2, *databases)
    through = Server(Path("/"), port=proxy.port)  # only asked, never started
    names = [f"seat-{number}" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: through.hold(name, 600), names))
        states = list(pool.map(through.state, names))
    assert {state["status"] for state in states} == {"held"}
    assert through.hold(names[0], 60)["expiresAt"] < states[0]["expiresAt"]  # moved, not doubled
    shards = [set(check_invariants(database).events) for database in databases]
    assert shards[0] | shards[1] == set(names)
    assert not shards[0] & shards[1]
    assert all(len(shard) > 60 for shard in shards)
    assert [node.stop() for of in groups for node in of] == [0] * 4


FOLDED = (
    "/reservations/{name}",
    "/reservations/{encoded}",
    "/reservations/./{name}",
    "/./reservations/{name}",
    "/x/../reservations/{name}",
    "/%2e/reservations/{name}",
    "/x/%2E%2e/reservations/{name}",
    "/reservations%2f{name}",
    "/reservations//{name}",
    "//reservations/{name}",
    "/reservations\\{name}",
    "/%72eservations/{name}",
    "http://other.example/reservations/{name}",
)


def test_f61_one_seat_is_one_shards_however_it_is_written(
    postgres: PostgresServer, serve_behind_a_proxy: Callable[..., tuple[HAProxy, Groups]]
) -> None:
    databases = [postgres.address(f"folded_{number}") for number in range(2)]
    proxy, groups = serve_behind_a_proxy(1, *databases)
    names = [f"seat-{number:02}" for number in range(20)]
    body = b'{"ttlSeconds":600}'
    for name in names:
        for form in FOLDED:
            path = form.format(name=name, encoded=name.replace("-", "%2d"))
            head = request_head("POST", path, f"Content-Length: {len(body)}", "Connection: close")
            assert exchange(proxy.port, head + body)[9:12] in (b"201", b"400")
    shards = [set(check_invariants(database).events) for database in databases]
    assert shards[0] | shards[1] == set(names)
    assert not shards[0] & shards[1]

    event = b'{"runAt":2000000000000}'
    for written in ("agent", "%61gent", "a%67ent"):
        path = f"/schedules/{written}/events/e"
        head = request_head("PUT", path, f"Content-Length: {len(event)}", "Connection: close")
        assert exchange(proxy.port, head + event)[9:12] in (b"201", b"200")
    answers = [node.get("/schedules/agent/events/e").status for (node,) in groups]
    assert sorted(answers) == [200, 404]
