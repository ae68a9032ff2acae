"""The service on PostgreSQL: one node and two, and what the server allows at the most.

The server is one of our own on this machine, with its data on the disk that the checkout
is on, or the one at `--database`; each measurement has a schema of its own.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg

from benchmarks.alarms import drain_ours, lateness_figures, lateness_ours
from benchmarks.figures import Bar, Figure
from benchmarks.load import CONNECTIONS, Load, MissingTool, run_load
from benchmarks.scenarios import WrongAnswer, check_log
from benchmarks.servers import ours, scratch
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from reservation_expiry.infrastructure.stores.postgres.arrays import TYPES, columns
from reservation_expiry.infrastructure.stores.sql.tables import ALARMS, EVENTS, RESERVATIONS
from tests.support.database import sql
from tests.support.postgres import NoPostgres, PostgresServer

LIMIT_SECONDS = 3.0
COMMITS = 300


@dataclass
class Site:
    """A server to measure on; `place` makes an empty schema for a measurement."""

    url: str

    def place(self, folder: Path | None = None) -> PostgresAddress:
        name = f"bench_{next(_numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            connection.execute(f"CREATE SCHEMA {name}")
        sign = "&" if "?" in self.url else "?"
        return PostgresAddress(f"{self.url}{sign}options={quote(f'-csearch_path={name}')}")


_numbers = count(1)


def postgres(
    url: str | None,
    rounds: int,
    seconds: float,
    drained: int,
    spread_over: int,
    node_counts: tuple[int, ...],
) -> Iterator[Figure]:
    with site_at(url) as site:
        one = Figure("PostgreSQL: creates, one node", "1/s", bar=Bar(3_000, 4_500, "ours"))
        two = Figure("  two nodes", "1/s", bar=Bar(3_500, 5_000, "ours"), note="beside one node")
        more = [Figure(f"  {n} nodes", "1/s") for n in node_counts]
        for _ in range(rounds):
            one.ours.append(_creates(site, seconds, one).per_second)
            two.ours.append(_creates(site, seconds, two, nodes=2).per_second)
            for nodes, figure in zip(node_counts, more, strict=True):
                figure.ours.append(_creates(site, seconds, figure, nodes).per_second)
        two.peer, two.peer_name = one.ours, "one node"
        yield from (one, two, *more)
        if node_counts:  # the long way round
            yield from _by_connections(site, seconds)
        yield from _alarms(site, rounds, drained, spread_over, node_counts)
        yield from _limits(site, one.ours_median or 0)


@contextmanager
def site_at(url: str | None) -> Iterator[Site]:
    if url is not None:
        yield Site(url)
        return
    try:
        with scratch() as folder:
            folder.chmod(0o711)  # root runs the server as another user
            server = PostgresServer(folder / "server")
            try:
                yield Site(server.start().url())
            finally:
                server.remove()
    except NoPostgres as error:
        raise MissingTool(str(error)) from error


def _creates(
    site: Site, seconds: float, figure: Figure, nodes: int = 1, connections: int = CONNECTIONS
) -> Load:
    """Each node has a load of its own. Notes how many creates were in a commit."""
    database = site.place()
    prepare(database)
    with ExitStack() as stack:
        servers = [stack.enter_context(ours(database=database)) for _ in range(nodes)]
        loads: list[Load] = []

        def load(number: int) -> None:
            port = servers[number].port
            loads.append(
                run_load("creates", port, seconds, connections=connections, tag=f"n{number}")
            )

        before = _commits(database)
        threads = [threading.Thread(target=load, args=(number,)) for number in range(nodes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        commits = _commits(database) - before
        if sum(each.unexpected for each in loads):
            raise WrongAnswer("not every create was answered with 201")
        check_log(servers[0])
    made = sum(each.per_second for each in loads)
    figure.note = f"{made * seconds / max(commits, 1):.0f} creates in a commit"
    worst = max(each.p99_ms for each in loads)
    answers = sum(each.answers for each in loads)
    return Load(made, max(each.p50_ms for each in loads), worst, 0, answers)


def _commits(database: PostgresAddress) -> int:
    return int(sql(database, "SELECT coalesce(sum(batch), 0) FROM writers")[0][0])


def _by_connections(site: Site, seconds: float) -> Iterator[Figure]:
    """Few connections make small batches, many make large ones."""
    for connections in (1, 8, 128):
        figure = Figure(f"  one node, {connections} connections", "1/s")
        figure.ours.append(_creates(site, seconds, figure, 1, connections).per_second)
        yield figure


def _alarms(
    site: Site, rounds: int, drained: int, spread_over: int, node_counts: tuple[int, ...]
) -> Iterator[Figure]:
    drain = Figure(f"  drain of {drained:,} overdue", "1/s", bar=Bar(6_000, 10_000, "ours"))
    steady = Figure("    from the first to the last", "1/s")
    for _ in range(rounds):
        per_second, from_first = drain_ours(drained, site.place)
        drain.ours.append(per_second)
        steady.ours.append(from_first)
    yield from (drain, steady)
    for nodes in (2, *node_counts) if node_counts else ():
        _, from_first = drain_ours(drained, site.place, nodes)
        yield Figure(f"    the same, {nodes} nodes", "1/s", [from_first])
    many = spread_over * 10
    late = lateness_ours(
        many, lambda due, i: due + i * spread_over * 1000 // many, place=site.place
    )
    bars = (None, Bar(40, None, "ours", low=True))
    yield from lateness_figures(f"  lateness, {many} over {spread_over} s", late, bars)


def _limits(site: Site, creates_per_second: float) -> Iterator[Figure]:
    """The server alone, with the service's own statements and rows that cost nothing."""
    database = site.place()
    prepare(database)
    with psycopg.connect(database.url, autocommit=True) as connection:
        began = time.perf_counter()
        for _ in range(COMMITS):
            connection.execute("UPDATE log_head SET projected_position = projected_position")
        per_second = COMMITS / (time.perf_counter() - began)
        yield Figure("PostgreSQL alone: commits of one row", "1/s", [per_second])
        first = 0
        for batch in (CONNECTIONS // 2, CONNECTIONS):
            holds, first = _inserts(connection, batch, first)
            note = f"our creates over HTTP are {creates_per_second / holds:.0%} of it"
            what = f"  the rows of {batch} holds in a commit"
            yield Figure(what, "holds/s", [holds], note=note)


def _inserts(connection: psycopg.Connection, batch: int, first: int) -> tuple[float, int]:
    state, checksum, number = b"x" * 60, b"x" * 16, first
    parts = ", ".join(
        f"{table.name}_ AS ({table.insert} SELECT * FROM unnest("
        + ", ".join(f"%s::{TYPES[column.kind]}[]" for column in table.columns)
        + "))"
        for table in (EVENTS, ALARMS, RESERVATIONS)
    )
    began = time.perf_counter()
    while time.perf_counter() - began < LIMIT_SECONDS:
        names = [f"{(number + i) * 7919 % 10_000_019:08d}" for i in range(batch)]
        events = [
            (2 * (number + i) + version, name, version, "reservation.Held", state, 1, checksum)
            for i, name in enumerate(names)
            for version in (1, 2)
        ]
        alarms = [(name, 1.5, state) for name in names]
        rows = [(name, 2, "held", 1, 2, None, 0, 2, None, None, None) for name in names]
        values = columns(EVENTS, events) + columns(ALARMS, alarms) + columns(RESERVATIONS, rows)
        connection.execute("BEGIN; SELECT 1 FROM log_head FOR UPDATE", prepare=False)
        connection.execute(f"WITH {parts} SELECT 1", values)
        connection.execute("UPDATE log_head SET position = position + 1; COMMIT", prepare=False)
        number += batch
    return (number - first) / (time.perf_counter() - began), number
