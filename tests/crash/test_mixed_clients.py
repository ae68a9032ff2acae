"""Many clients at once, slow and fast, some of which go away: nothing is lost, nothing doubled."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import request_head
from tests.support.database import sql
from tests.support.logs import verified
from tests.support.server import Server

pytestmark = pytest.mark.real_time

CLIENTS, SECONDS = 200, 2.0
TTL = b'{"ttlSeconds":3600}'
PATIENCE_SECONDS = 30.0


class Crowd:
    """What clients were told, by name: `held` were answered 201, `asked` may be held or not."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._seconds = seconds
        self.held: set[str] = set()
        self.asked: set[str] = set()

    async def run(self, clients: int) -> None:
        kinds: list[Callable[[str], Coroutine[Any, Any, None]]] = [
            self._fast, self._fast, self._by_the_byte, self._in_packets, self._goes_away,
        ]  # fmt: skip
        ends = asyncio.get_running_loop().time() + self._seconds
        await asyncio.gather(
            *(self._until(ends, kinds[number % len(kinds)], number) for number in range(clients))
        )

    async def _until(
        self, ends: float, client: Callable[[str], Coroutine[Any, Any, None]], number: int
    ) -> None:
        turn = 0
        while asyncio.get_running_loop().time() < ends:
            await client(f"c{number}-{turn}")
            turn += 1

    async def _fast(self, name: str) -> None:
        """Ten holds of a connection, one after the other, each read again."""
        reader, writer = await self._connected()
        for index in range(10):
            writer.write(self._request(f"{name}-{index}"))
            await self._answered(reader, f"{name}-{index}")
            writer.write(request_head("GET", f"/reservations/{name}-{index}"))
            assert await _status(reader) == 200
        writer.close()

    async def _by_the_byte(self, name: str) -> None:
        reader, writer = await self._connected()
        request = self._request(name)
        for byte in request:
            writer.write(bytes([byte]))
            await asyncio.sleep(random.random() * 0.01)
        await self._answered(reader, name)
        writer.close()

    async def _in_packets(self, name: str) -> None:
        """Five holds in one packet, and the last of them cut in two."""
        reader, writer = await self._connected()
        names = [f"{name}-{index}" for index in range(5)]
        requests = b"".join(map(self._request, names))
        writer.write(requests[:-10])
        await asyncio.sleep(random.random() * 0.2)
        writer.write(requests[-10:])
        for each in names:
            await self._answered(reader, each)
        writer.close()

    async def _goes_away(self, name: str) -> None:
        """Sends a hold, or a part of one, and waits for nothing."""
        _, writer = await self._connected()
        request = self._request(name)
        writer.write(request[: random.randrange(1, len(request) + 1)])
        await asyncio.sleep(random.random() * 0.02)
        writer.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    def _request(self, name: str) -> bytes:
        self.asked.add(name)
        return request_head("POST", f"/reservations/{name}", f"Content-Length: {len(TTL)}") + TTL

    async def _answered(self, reader: asyncio.StreamReader, name: str) -> None:
        status = await _status(reader)
        assert status in (201, 503), status
        if status == 201:
            self.held.add(name)


async def _status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        await reader.readexactly(length)
    return int(head.split()[1])


def crowd_at(server: Server, clients: int, seconds: float) -> Crowd:
    """Raises AssertionError if the log is not what the clients were told."""
    crowd = Crowd(server.port, seconds)
    asyncio.run(crowd.run(clients))
    assert server.stop() == 0
    found = Counter(
        originator_id.partition("/")[2]
        for (originator_id,) in sql(
            server.database, "SELECT originator_id FROM events WHERE topic = 'reservation.Held'"
        )
    )
    assert crowd.held <= found.keys() <= crowd.asked
    assert set(found.values()) == {1}, "somebody's hold was made twice"
    assert verified(server.database).found == 0
    return crowd


def test_of_many_slow_and_fast_clients_no_hold_is_lost_or_made_twice(tmp_path: Path) -> None:
    server = Server(tmp_path, "--log-level", "warning").start()
    try:
        assert len(crowd_at(server, CLIENTS, SECONDS).held) > CLIENTS
    finally:
        server.ensure_gone()
