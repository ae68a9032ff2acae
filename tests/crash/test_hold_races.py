"""Holds with terms on real servers: two processes, retries, and kill -9."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.infrastructure.stores.address import Address
from tests.support.database import sql
from tests.support.logs import verified
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time

TOKEN = "a-token-of-a-buyer-1"
ENDINGS = ("reservation.Confirmed", "reservation.Released", "reservation.Expired")


def ask(
    port: int, method: str, path: str, body: Any = None, key: str | None = None
) -> tuple[int, bytes]:
    headers = {"Hold-Token": TOKEN, **({} if key is None else {"Idempotency-Key": key})}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def endings(address: Address) -> Counter[str]:
    """How often each hold has ended."""
    rows = sql(address, "SELECT originator_id, topic FROM events")
    return Counter(originator_id for originator_id, topic in rows if topic in ENDINGS)


def two_servers(tmp_path: Path, address: Address) -> list[Server]:
    folders = [tmp_path / str(number) for number in range(2)]
    for folder in folders:
        folder.mkdir()
    return [Server(folder, database=address).start() for folder in folders]


def test_f11_holds_are_confirmed_on_two_servers_as_they_expire_and_end_once(
    tmp_path: Path, address: Address
) -> None:
    servers = two_servers(tmp_path, address)
    names = [f"cart-{number}" for number in range(40)]
    try:
        with ThreadPoolExecutor(16) as pool:
            made = list(
                pool.map(
                    lambda n: ask(
                        servers[0].port,
                        "PUT",
                        f"/holds/{n}",
                        {"ttlSeconds": 2, "lines": [{"item": n}]},
                    ),
                    names,
                )
            )
            assert {status for status, _ in made} == {201}
            due_ms = [json.loads(body)["expiresAt"] for _, body in made]

            def confirm(number: int) -> int:
                """At its instant, give or take 30 ms."""
                at = due_ms[number // 2] / 1000 + random.uniform(-0.03, 0.03)
                time.sleep(max(0, at - time.time()))
                port = servers[number % 2].port
                return ask(port, "POST", f"/holds/{names[number // 2]}/confirm", {})[0]

            statuses = list(pool.map(confirm, range(2 * len(names))))
        assert set(statuses) <= {200, 409}
        wait_for(lambda: sql(address, "SELECT count(*) FROM alarms") == [(0,)], 10)
        assert endings(address) == Counter({f"reservation/{name}": 1 for name in names})
        free = [json.loads(ask(servers[1].port, "GET", f"/items/{n}")[1])["free"] for n in names]
        confirmed = {
            i.partition("/")[2]
            for (i,) in sql(
                address,
                "SELECT originator_id FROM events WHERE topic = 'reservation.Confirmed'",
            )
        }
        assert free == [0 if name in confirmed else 1 for name in names]
    finally:
        for server in servers:
            server.ensure_gone()
    assert verified(address).found == 0


def test_kill_around_a_confirmation_leaves_one_ending_and_the_same_answer_after_it(
    tmp_path: Path, address: Address
) -> None:
    server = Server(tmp_path, database=address).start()
    try:
        for turn in range(6):
            name, key = f"cart-{turn}", f"key-{turn}"
            body = {"ttlSeconds": 600, "lines": [{"item": "seat", "units": 1}]}
            assert ask(server.port, "PUT", "/items/seat", {"capacity": 10})[0] == 200
            assert ask(server.port, "PUT", f"/holds/{name}", body)[0] == 201
            answered: list[tuple[int, bytes]] = []

            def confirm(name: str = name, key: str = key, told: Any = answered) -> None:
                with suppress(OSError, http.client.HTTPException):  # killed first
                    told.append(ask(server.port, "POST", f"/holds/{name}/confirm", {}, key))

            thread = threading.Thread(target=confirm)
            thread.start()
            time.sleep(random.uniform(0, 0.012))
            server.kill()
            thread.join()
            server.start()
            again = ask(server.port, "POST", f"/holds/{name}/confirm", {}, key)
            assert again[0] == 200
            assert answered in ([], [again]), "byte for byte, as it was told before"
        assert set(endings(address).values()) == {1}
        found = json.loads(ask(server.port, "GET", "/items/seat")[1])
        assert (found["held"], found["confirmed"]) == (0, 6)
        assert server.stop() == 0
    finally:
        server.ensure_gone()
    assert verified(address).found == 0


def test_f16_one_key_at_two_servers_at_once_is_one_hold_and_one_answer(
    tmp_path: Path, address: Address
) -> None:
    """The second waits for the first: no 409 of a request that is still running arises."""
    servers = two_servers(tmp_path, address)
    try:

        def take(number: int) -> tuple[int, bytes]:
            body = {"ttlSeconds": 600, "lines": [{"item": "seat"}]}
            return ask(servers[number % 2].port, "PUT", "/holds/cart-1", body, "one-key")

        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(take, range(8)))
        assert len(answers) == 1
        assert next(iter(answers))[0] == 201
        assert sql(address, "SELECT count(*) FROM events") == [(2,)]
    finally:
        for server in servers:
            server.ensure_gone()


def test_capacity_is_never_passed_by_two_hundred_at_two_servers(
    tmp_path: Path, address: Address
) -> None:
    servers = two_servers(tmp_path, address)
    try:
        assert ask(servers[0].port, "PUT", "/items/floor", {"capacity": 10})[0] == 200

        def take(number: int) -> int:
            body = {"ttlSeconds": 600, "lines": [{"item": "floor", "units": 3}]}
            return ask(servers[number % 2].port, "PUT", f"/holds/cart-{number}", body)[0]

        with ThreadPoolExecutor(16) as pool:
            statuses = Counter(pool.map(take, range(200)))
        assert statuses == {201: 3, 409: 197}
    finally:
        for server in servers:
            server.ensure_gone()
    assert verified(address).found == 0
