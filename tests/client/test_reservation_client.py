"""The client for programs, on a real server and on transports that fail."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from reservation_client import (
    AlreadyExpired,
    AlreadyReleased,
    AsyncClient,
    Client,
    HoldNotFound,
    NotAvailable,
    NotYours,
    ReservationError,
    Unavailable,
    errors,
    exchange,
)
from reservation_expiry.api import hold_answers
from tests.support.server import Server, wait_for

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("client")).start()
    try:
        yield server
    finally:
        server.ensure_gone()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def test_a_hold_is_confirmed_in_its_block(client: Client) -> None:
    client.set_item("hall:floor", 2)
    with client.hold(ttl=60, lines={"hall:A-1": 1, "hall:floor": 2}, owner="ann") as hold:
        assert 59 < hold.state.seconds_left <= 60
        hold.extend(120)
        hold.confirm()
    assert client.show(hold.name).status == "confirmed"
    assert client.item("hall:floor")["free"] == 0
    assert hold.cancel().status == "cancelled"
    assert client.item("hall:floor")["free"] == 2


def test_left_unconfirmed_a_hold_is_released(client: Client) -> None:
    with pytest.raises(ValueError, match="no money"), client.hold("cart-1", ttl=60):
        raise ValueError("no money")
    assert client.show("cart-1").status == "released"
    with client.hold("cart-2", ttl=60) as hold:
        client.held("cart-2", hold.token).release()
    assert client.show("cart-2").status == "released"


def test_each_refusal_is_an_error_of_its_own(client: Client) -> None:
    hold = client.hold("cart-3", ttl=60, lines={"seat-3": 1})
    with pytest.raises(NotAvailable) as short:
        client.hold("cart-4", ttl=60, lines={"seat-3": 1})
    assert short.value.items == ({"item": "seat-3", "wanted": 1, "free": 0},)
    with pytest.raises(NotYours):
        client.held("cart-3", "a-token-of-another-2").confirm()
    hold.release()
    with pytest.raises(AlreadyReleased) as ended:
        hold.confirm()
    assert ended.value.hold is not None
    assert ended.value.hold["status"] == "released"
    with pytest.raises(HoldNotFound):
        client.show("nobody-1")
    hold = client.hold("cart-5", ttl=1)
    wait_for(lambda: client.show("cart-5").status == "expired", 5)
    with pytest.raises(AlreadyExpired):
        hold.confirm()


def test_holds_and_events_come_a_page_after_the_other(client: Client) -> None:
    for number in range(3):
        client.hold(f"page-{number}", ttl=60, owner="pages")
    assert [h.name for h in client.holds(owner="pages", limit=1)] == ["page-0", "page-1", "page-2"]
    found = list(client.events())
    assert [e["position"] for e in found] == list(range(1, len(found) + 1))


def test_awaited_it_is_the_same(server: Server) -> None:
    async def shop() -> list[str]:
        async with AsyncClient(server.url) as client:
            async with await client.hold("async-1", ttl=60, lines={"async-seat": 1}) as hold:
                await hold.confirm()
            async with await client.hold("async-2", ttl=60):
                pass
            return [h.status async for h in client.holds(prefix="async")]

    assert asyncio.run(shop()) == ["confirmed", "released"]


# When the service does not answer


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr("reservation_client.sync.time.sleep", waited.append)
    return waited


def answering(*answers: Callable[[], httpx.Response]) -> tuple[Client, list[httpx.Request]]:
    """A client whose service gives these answers, one after the other."""
    asked: list[httpx.Request] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return left.pop(0)()

    return Client("http://service", transport=httpx.MockTransport(answer)), asked


def lost() -> httpx.Response:
    raise httpx.ReadError("the connection was lost")


def busy() -> httpx.Response:
    return httpx.Response(503, headers={"Retry-After": "2"}, json={"code": "overloaded"})


def item_set() -> httpx.Response:
    return httpx.Response(200, json={"item": "a", "capacity": 1})


def test_what_was_lost_is_asked_again_with_the_same_key(waits: list[float]) -> None:
    client, asked = answering(lost, busy, item_set)
    assert client.set_item("a", 1)["capacity"] == 1
    assert len({request.headers["Idempotency-Key"] for request in asked}) == 1
    assert len({request.content for request in asked}) == 1
    assert 1.0 <= waits[1] <= 2.0, "as Retry-After says"


def test_in_the_end_it_is_given_up(waits: list[float]) -> None:
    client, asked = answering(*[lost] * exchange.ATTEMPTS)
    with pytest.raises(Unavailable, match="the connection was lost"):
        client.set_item("a", 1)
    assert len(asked) == exchange.ATTEMPTS
    assert all(wait <= exchange.MAX_WAIT_SECONDS for wait in waits)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code":"new-code"}'])
def test_an_answer_that_is_not_understood_is_an_error_all_the_same(body: bytes) -> None:
    client, _ = answering(lambda: httpx.Response(409, content=body))
    with pytest.raises(ReservationError) as found:
        client.set_item("a", 1)
    assert found.value.status == 409


def test_every_code_of_the_service_has_a_class() -> None:
    problems: Any = json.dumps(sorted(hold_answers.STATUS_OF_CODE))
    assert set(json.loads(problems)) <= set(errors.BY_CODE)
