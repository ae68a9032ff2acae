"""Holds with terms beside those of the contract, in turns: puts and confirmations."""

from collections.abc import Iterator

from benchmarks.figures import Bar, Figure
from benchmarks.load import Load, run_load
from benchmarks.postgres import Site, site_at
from benchmarks.scenarios import WrongAnswer, check_log
from benchmarks.servers import Ours, ours
from reservation_expiry.infrastructure.stores.address import Address

HALF = Bar(0.5)


def holds(url: str | None, rounds: int, seconds: float) -> Iterator[Figure]:
    """Each figure's peer is what the contract's creates were in the same round."""
    with site_at(url) as site:
        for store in ("SQLite", "PostgreSQL"):
            figures = [
                Figure(f"{what}, {store}", "1/s", peer_name="creates", bar=HALF)
                for what in ("puts of one line, items of their own", "  of one pool", "  confirms")
            ]
            for _ in range(rounds):
                _round(_database(site, store), figures, seconds)
            yield from figures


def _database(site: Site, store: str) -> Address | None:
    return site.place() if store == "PostgreSQL" else None


def _round(database: Address | None, figures: list[Figure], seconds: float) -> None:
    own, pool, confirms = figures
    with ours(database=database) as server:
        server.request("PUT", "/items/pool", b'{"capacity":1000000}')
        creates = _load(server, "creates", seconds, tag="plain")
        put = _load(server, "puts", seconds, tag="own")
        own.ours.append(put.per_second)
        pool.ours.append(_load(server, "puts", seconds, tag="pool", pool="pool").per_second)
        confirmed = _load(server, "confirms", seconds / 2, tag="own", count=put.answers)
        confirms.ours.append(confirmed.per_second)
        for figure in figures:
            figure.peer.append(creates.per_second)
        check_log(server)


def _load(server: Ours, script: str, seconds: float, **variables: object) -> Load:
    load = run_load(script, server.port, seconds, **variables)
    if load.unexpected:
        raise WrongAnswer(f"{script}: {load.unexpected} answers were not as expected")
    return load
