"""What is measured under load, ours and the peer's in turn."""

import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Iterator

from benchmarks.figures import Bar, Figure
from benchmarks.load import CONNECTIONS, Load, MissingTool, run_load
from benchmarks.servers import Ours, Workerd, ours, workerd
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.verify import verify
from reservation_expiry.infrastructure.stores.store import open_store

PAUSE_SECONDS = 0.5
SAMPLE = 20


class WrongAnswer(AssertionError):
    """A server did not do what it was measured at."""


def requests_per_second(rounds: int, seconds: float, many: int) -> Iterator[Figure]:
    """Creates, reads, mixed and re-holds, with 32 connections, interleaved by rounds."""
    creates = Figure("creates of new holds, durable", "1/s", bar=Bar(26, 35))
    p50 = Figure("  their p50", "ms")
    p99 = Figure("  their p99", "ms")
    hot = Figure("reads of one reservation", "1/s", bar=Bar(3, 4))
    spread = Figure(
        f"reads of {many:,} at random",
        "1/s",
        bar=Bar(3, 4),
        note="beside the peer's reads of one",
    )
    mixed = Figure("mixed: 70 % reads, 25 % creates, 5 % replays", "1/s")
    reholds = Figure("re-holds of 1,000", "1/s", bar=Bar(5, 8))
    figures = [creates, p50, p99, hot, spread, mixed, reholds]
    for _ in range(rounds):
        with ours() as server:
            found = _all_loads(server, seconds)
            _hold_many(server.port, "spread", many)
            spread.ours.append(_read_spread(server.port, seconds, many))
            check_log(server)
            _note(found, figures, "ours")
        try:
            with workerd() as peer:
                found = _all_loads(peer, seconds)
                _note(found, figures, "peer")
                spread.peer.append(found["hot"].per_second)
        except MissingTool as missing:
            for figure in figures:
                figure.note = f"peer missing: {missing}"
    for figure in figures:
        figure.peer_name = Workerd.name
    yield from figures


def _all_loads(server: Ours | Workerd, seconds: float) -> dict[str, Load]:
    port = server.port
    found = {"creates": run_load("creates", port, seconds, tag="new")}
    _sample(port, "new", "held")
    _hold(port, "hot")
    found["hot"] = _rested("reads", port, seconds, name="hot")
    _hold_many(port, "again", 1_000)
    found["reholds"] = _rested("reholds", port, seconds, tag="again", count=1_000)
    found["mixed"] = _rested("mixed", port, seconds, tag="again", count=1_000, fresh="fresh")
    wrong = {name: load.unexpected for name, load in found.items() if load.unexpected}
    if wrong:
        raise WrongAnswer(f"{server.name} answered otherwise than expected: {wrong}")
    return found


def _rested(script: str, port: int, seconds: float, **variables: object) -> Load:
    time.sleep(PAUSE_SECONDS)
    return run_load(script, port, seconds, **variables)


def _read_spread(port: int, seconds: float, many: int) -> float:
    load = _rested("reads", port, seconds, tag="spread", count=many)
    if load.unexpected:
        raise WrongAnswer(f"{load.unexpected} reads were not answered with 200")
    return load.per_second


def _note(found: dict[str, Load], figures: list[Figure], side: str) -> None:
    creates, p50, p99, hot, _, mixed, reholds = figures
    getattr(creates, side).append(found["creates"].per_second)
    getattr(p50, side).append(found["creates"].p50_ms)
    getattr(p99, side).append(found["creates"].p99_ms)
    getattr(hot, side).append(found["hot"].per_second)
    getattr(mixed, side).append(found["mixed"].per_second)
    getattr(reholds, side).append(found["reholds"].per_second)


def _sample(port: int, tag: str, status: str) -> None:
    """Looks at a few of what was made: the whole body, and its times."""
    for number in range(SAMPLE, 2 * SAMPLE):  # wrk asks for a first request that it never sends
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/reservations/{tag}-{number}"
        ) as answer:
            body = json.load(answer)
        right = {
            "reservationId": f"{tag}-{number}",
            "status": status,
            "expiresAt": body["createdAt"] + 3_600_000,
            "alarmAt": body["expiresAt"],
            "expiredAt": None,
            "expirationCount": 0,
        }
        if body != body | right:
            raise WrongAnswer(f"{body} where {right} should be")


def check_log(server: Ours) -> None:
    """Raises WrongAnswer unless what was made under load is whole."""
    store = open_store(server.database)
    report = verify(store, EventMapper())
    store.close()
    if report.found:
        raise WrongAnswer(f"the log does not verify after the load: {report.differences[:3]}")


def _hold(port: int, *names: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for name in names:
        connection.request("POST", f"/reservations/{name}", b'{"ttlSeconds":3600}')
        answer = connection.getresponse()
        answer.read()
        if answer.status != 201:
            raise WrongAnswer(f"{answer.status} to a hold")
    connection.close()


def _hold_many(port: int, tag: str, many: int) -> None:
    """Holds `tag`-1 to `tag`-many over 32 connections."""
    shares = [
        [f"{tag}-{number}" for number in range(1 + share, many + 1, CONNECTIONS)]
        for share in range(CONNECTIONS)
    ]
    threads = [threading.Thread(target=_hold, args=(port, *names)) for names in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
