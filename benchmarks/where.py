"""Where the time of one create goes, in microseconds: `python -m benchmarks.where`.

32 threads hold new names through the application, with no HTTP; every statement of the
writer's transactions is timed. What HTTP adds is timed on its own, with no transaction.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import click

from benchmarks.load import CONNECTIONS
from benchmarks.servers import scratch
from reservation_expiry.api.access import Access
from reservation_expiry.api.front import Front
from reservation_expiry.api.http import create_app
from reservation_expiry.api.metrics import Metrics
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.async_reservations import AsyncReservations
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession

SECONDS = 6.0
REQUESTS = 5_000
TIMED = ("begin", "tails", "head", "append", "put_alarms", "put_reservations", "commit")


def main(seconds: float = SECONDS) -> None:
    with scratch() as folder:
        path = folder / "reservations.db"
        prepare(path)
        application = ReservationApplication(path)
        spent = _time_statements()
        application.start(alarms=False)
        holds, elapsed = _hold_for(application, seconds)
        batches = spent.pop("batches")
        get_us = _request_us(application, "GET", b"")
        refused_us = _request_us(application, "POST", b'{"ttlSeconds":4}')
        application.stop()
    click.echo(f"{holds / elapsed:,.0f} holds/s, {holds / batches:.1f} in a commit; us per hold:")
    for name in TIMED:
        click.echo(f"  {name:17} {spent[name] / holds * 1e6:7.1f}")
    rest = elapsed - sum(spent.values())
    click.echo(f"  {'all else':17} {rest / holds * 1e6:7.1f}   decide, encode, hand over, wait")
    click.echo("us per request, without a transaction:")
    click.echo(f"  a GET {get_us:.1f}; a POST refused for its ttlSeconds {refused_us:.1f}")


def _time_statements() -> defaultdict[str, float]:
    """Each one's own time: what it calls of the others is theirs."""
    spent: defaultdict[str, float] = defaultdict(float)
    inner: list[float] = []  # time of what was called, for each that is under way

    def timed(name: str) -> Callable[..., Any]:
        method = getattr(SqliteSession, name)

        def run(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            inner.append(0.0)
            try:
                return method(*arguments, **named)
            finally:
                took = time.perf_counter() - began
                spent[name] += took - inner.pop()
                if inner:
                    inner[-1] += took
                spent["batches"] += name == "commit"

        return run

    for name in TIMED:
        setattr(SqliteSession, name, timed(name))
    return spent


def _hold_for(application: ReservationApplication, seconds: float) -> tuple[int, float]:
    began, counts = time.perf_counter(), [0] * CONNECTIONS

    def hold(caller: int) -> None:
        while time.perf_counter() - began < seconds:
            application.hold(f"n-{caller}-{counts[caller]}", 3600)
            counts[caller] += 1

    threads = [threading.Thread(target=hold, args=(caller,)) for caller in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), time.perf_counter() - began


def _request_us(application: ReservationApplication, method: str, body: bytes) -> float:
    """What the front takes for it, on an event loop, without a server."""
    headers = [(b"host", b"a"), (b"content-length", str(len(body)).encode())]
    path = b"/reservations/n-0-0"
    scope = {"method": method, "raw_path": path, "headers": headers, "http_version": "1.1"}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        pass

    async def ask() -> float:
        metrics = Metrics(application)
        front = Front(
            application,
            AsyncReservations(application),
            create_app(application, metrics=metrics),
            Access(),
            metrics,
            replay_route=False,
        )
        began = time.perf_counter()
        for _ in range(REQUESTS):
            await front(scope, receive, send)
        return (time.perf_counter() - began) / REQUESTS * 1e6

    return asyncio.run(ask())


if __name__ == "__main__":
    main()
