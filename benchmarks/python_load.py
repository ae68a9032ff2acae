"""The load where wrk is not installed: the same scenarios over aiohttp.

It takes more of the machine than wrk does and so measures less of the server. What it
finds is right to compare within a run, since ours and the peer's get the same load.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterator
from statistics import quantiles

import aiohttp

Request = tuple[str, str, str | None, tuple[int, ...]]
"""(method, path, body, statuses that are expected)"""

TIMEOUT_SECONDS = 20
SEED = 7


def run(
    script: str, port: int, seconds: float, connections: int, **variables: object
) -> tuple[list[float], int, float]:
    """Sends what `wrk/<script>.lua` would: (latencies in ms, unexpected answers, seconds)."""
    return asyncio.run(_run(SCRIPTS[script](**variables), port, seconds, connections))


async def _run(
    requests: Iterator[Request], port: int, seconds: float, connections: int
) -> tuple[list[float], int, float]:
    latencies: list[float] = []
    unexpected = 0

    async def connection(session: aiohttp.ClientSession) -> None:
        nonlocal unexpected
        while time.perf_counter() < ends:
            following = next(requests, None)
            if following is None:
                return
            method, path, body, expected = following
            sent = time.perf_counter()
            async with session.request(method, path, data=body) as answer:
                await answer.read()
                unexpected += answer.status not in expected
            latencies.append((time.perf_counter() - sent) * 1000)

    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{port}",
        headers={"Content-Type": "application/json"},
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
    ) as session:
        began = time.perf_counter()
        ends = began + seconds
        await asyncio.gather(*(connection(session) for _ in range(connections)))
        return latencies, unexpected, time.perf_counter() - began


def percentile(latencies: list[float], percent: int) -> float:
    return quantiles(latencies, n=100)[percent - 1]


def creates(tag: str, ttl: int = 3600) -> Iterator[Request]:
    return (_hold(f"{tag}-{number}", ttl) for number in itertools.count(1))


def reads(name: str | None = None, tag: str = "", count: int = 1) -> Iterator[Request]:
    draw = random.Random(SEED)
    while True:
        yield _show(name or f"{tag}-{draw.randint(1, count)}")


def reholds(tag: str, count: int) -> Iterator[Request]:
    return (_hold(f"{tag}-{number}") for number in itertools.cycle(range(1, count + 1)))


def mixed(tag: str, count: int, fresh: str) -> Iterator[Request]:
    draw, number = random.Random(SEED), itertools.count(1)
    while True:
        dice, name = draw.randint(1, 100), f"{tag}-{draw.randint(1, count)}"
        if dice <= 70:
            yield _show(name)
        elif dice <= 75:
            yield "POST", f"/reservations/{name}/replay-alarm", '{"now":1}', (200,)
        else:
            yield _hold(f"{fresh}-{next(number)}")


def puts(tag: str, pool: str | None = None) -> Iterator[Request]:
    for number in itertools.count(1):
        name = f"{tag}-{number}"
        body = f'{{"ttlSeconds":3600,"lines":[{{"item":"{pool or name}"}}]}}'
        yield "PUT", f"/holds/{name}", body, (201,)


def confirms(tag: str, count: int) -> Iterator[Request]:
    for number in range(1, count + 1):
        yield "POST", f"/holds/{tag}-{number}/confirm", "{}", (200,)


def _hold(name: str, ttl: int = 3600) -> Request:
    return "POST", f"/reservations/{name}", f'{{"ttlSeconds":{ttl}}}', (201,)


def _show(name: str) -> Request:
    return "GET", f"/reservations/{name}", None, (200,)


SCRIPTS: dict[str, Callable[..., Iterator[Request]]] = {
    "creates": creates,
    "reads": reads,
    "reholds": reholds,
    "mixed": mixed,
    "puts": puts,
    "confirms": confirms,
}
