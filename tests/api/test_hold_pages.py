"""Reading holds: pages of them, one as it was, and one under a name of ours."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from reservation_expiry.api.cli import main
from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.server import url_of

TOKEN = {"Hold-Token": "a-token-of-a-buyer-1"}


def put(client: FlaskClient, name: str, ttl: int = 60, owner: str = "ann", **lines: int) -> Any:
    body = {
        "ttlSeconds": ttl,
        "owner": owner,
        "lines": [{"item": i, "units": n} for i, n in lines.items()],
    }
    found = client.put(f"/holds/{name}", json=body, headers=TOKEN)
    assert found.status_code in (200, 201), found.json
    return found.json


def names(client: FlaskClient, query: str = "") -> list[str]:
    """Of all pages, two holds at a time."""
    found, cursor = [], ""
    while True:
        page = client.get(f"/holds?limit=2&{query}&cursor={cursor}").json
        found += [hold["hold"] for hold in page["holds"]]
        cursor = page["next"]
        if cursor is None:
            return found


@pytest.fixture
def shop(client: FlaskClient, clock: ManualClock) -> FlaskClient:
    """Five holds in all states, and one that has no terms."""
    client.post("/reservations/plain-1", json={"ttlSeconds": 60})
    put(client, "cart-1", 90, seat=1)
    put(client, "cart-2", 30, "bob")
    put(client, "cart-3", 60, "bob")
    put(client, "cart-4", 60)
    put(client, "cart-5", 5)
    client.post("/holds/cart-3/confirm", json={}, headers=TOKEN)
    client.post("/holds/cart-4/release", json={}, headers=TOKEN)
    clock.advance(5_000)  # no alarm has run
    return client


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["cart-1", "cart-2", "cart-3", "cart-4", "cart-5"]),
        ("status=held", ["cart-1", "cart-2"]),
        ("status=expired", ["cart-5"]),
        ("status=confirmed", ["cart-3"]),
        ("owner=bob", ["cart-2", "cart-3"]),
        ("item=seat", ["cart-1"]),
        ("item=sea", []),
        ("prefix=cart-4", ["cart-4"]),
        ("sort=deadline&status=held", ["cart-2", "cart-1"]),
        ("sort=deadline", ["cart-5", "cart-2", "cart-3", "cart-4", "cart-1"]),
    ],
)
def test_holds_are_listed(query: str, found: list[str], shop: FlaskClient) -> None:
    assert names(shop, query) == found


@pytest.mark.parametrize(
    "query", ["status=open", "sort=owner", "limit=0", "cursor=1:cart-1", "dueBefore=x"]
)
def test_a_query_that_is_none_is_told(query: str, shop: FlaskClient) -> None:
    answer = shop.get(f"/holds?{query}")
    assert (answer.status_code, "must be" in answer.json["detail"]) == (400, True)


def test_a_hold_is_shown_as_it_was(client: FlaskClient, clock: ManualClock) -> None:
    first = put(client, "cart-1", 60, seat=1)
    clock.advance(1_000)
    client.post("/holds/cart-1/confirm", json={}, headers=TOKEN)
    clock.advance(1_000)
    client.post("/holds/cart-1/cancel", json={}, headers=TOKEN)
    at = first["createdAt"]
    shown = {
        query: client.get(f"/holds/cart-1?{query}").json["status"]
        for query in (f"at={at}", f"at={at + 1_000}", "version=2", "version=3", "version=4")
    }
    assert list(shown.values()) == ["held", "confirmed", "held", "confirmed", "cancelled"]
    assert client.get(f"/holds/cart-1?at={at - 1}").status_code == 404
    assert client.get("/holds/cart-1?version=5").status_code == 404
    assert client.get(f"/holds/cart-1?version=1&at={at}").status_code == 400


def test_a_hold_of_no_name_gets_one_and_the_same_for_the_same_key(client: FlaskClient) -> None:
    body = {"ttlSeconds": 60}
    key = {**TOKEN, "Idempotency-Key": "k1"}
    first = client.post("/holds", json=body, headers=key)
    assert first.status_code == 201
    assert client.post("/holds", json=body, headers=key).data == first.data
    other = client.post("/holds", json=body, headers=TOKEN).json["hold"]
    assert client.get(f"/holds/{other}").json["status"] == "held"
    assert other != first.json["hold"]


def test_no_hold_is_longer_than_the_longest(application: ReservationApplication) -> None:
    client = create_app(application, longest_hold_seconds=100).test_client()
    refused = client.put("/holds/cart-1", json={"ttlSeconds": 101})
    assert (refused.status_code, "from 1 to 100" in refused.json["detail"]) == (400, True)
    held = client.put("/holds/cart-1", json={"ttlSeconds": 60}).json
    assert held["until"] == held["createdAt"] + 100_000


def test_the_command_line_holds_and_counts(
    application: ReservationApplication, address: Address, tmp_path: Path
) -> None:
    application.stop()
    (tmp_path / "token").write_text("a-token-of-a-buyer-1\n")
    token = ("--token-file", str(tmp_path / "token"))

    def run(*words: str, code: int = 0) -> str:
        env = {"RESERVATION_DATABASE": url_of(address)}
        result = CliRunner().invoke(main, words, env=env)
        assert result.exit_code == code, result.output
        return result.output

    run("items", "set", "floor", "3")
    lines = ("--line", "seat", "--line", "floor=2")
    run("holds", "put", "cart-1", "--ttl", "60", *lines, "--owner", "ann", *token)
    short = run("holds", "put", "cart-2", "--ttl", "60", "--line", "floor=2", code=3)
    assert "floor has 1 free, 2 were asked for" in short
    assert "Hold-Token" in run("holds", "confirm", "cart-1", code=3)
    run("holds", "extend", "cart-1", "--ttl", "120", *token)
    run("holds", "confirm", "cart-1", *token)
    assert "confirmed" in run("holds", "list", "--owner", "ann")
    run("holds", "cancel", "cart-1", *token)
    assert "cancelled" in run("holds", "show", "cart-1")
    assert '"free":3' in run("items", "show", "floor", "--json")
    assert "seat" in run("items", "list")
    run("holds", "put", "cart-3", "--ttl", "60")
    assert "released" in run("holds", "release", "cart-3")
    run("holds", "show", "nobody", code=5)


@pytest.mark.parametrize("query", ["owner=%00", "item=%00", "prefix=a%00", "cursor=%00"])
def test_a_nul_in_a_parameter_is_refused(client: FlaskClient, query: str) -> None:
    answer = client.get(f"/holds?{query}")
    assert answer.status_code == 400
    assert "NUL" in answer.json["detail"]
