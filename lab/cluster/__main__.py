"""Watch a cluster fail and lose nothing: `make cluster`.

Three nodes on one PostgreSQL behind HAProxy, clients that hold all the time; meanwhile
nodes are killed and frozen, inside a transaction too, their connections cut, the database
server restarted. In the end the log is held against what the clients were told. About a
minute; exits 1 if anything is not as promised. With --fill-disk the server's disk, a small one
of its own, is full for ten seconds, too (CLUSTER_ARGS=--fill-disk; needs the right to mount).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from lab.cluster.load import Holding
from lab.cluster.site import Site
from reservation_expiry.infrastructure.alarms.dispatcher import LEASE_MS
from tests.support.database import sql
from tests.support.server import COMMAND, url_of, wait_for

CLIENTS = 8
PAUSE_SECONDS = 0.01
BETWEEN_FAULTS_SECONDS = 1.0
FROZEN_SECONDS = LEASE_MS / 1000 + 1.5
FULL_SECONDS = 10.0
END_WITHIN_SECONDS = 20
TAKE_OVER_LIMIT_MS = LEASE_MS + 1_000

_ENDS = """
SELECT count(*), coalesce(sum(expired), 0), coalesce(sum(greatest(expired - held, 0)), 0) FROM (
    SELECT count(*) FILTER (WHERE topic = 'reservation.Held') AS held,
        count(*) FILTER (WHERE topic = 'reservation.Expired') AS expired
    FROM events GROUP BY originator_id) AS ends"""
_WORST = "SELECT max(expired_at_ms - expires_at_ms) FROM reservations"


@click.command()
@click.option("--fill-disk", is_flag=True, help="Fill the database server's disk once, too.")
def main(fill_disk: bool) -> None:
    """Run it, and say what was found."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with Site(Path(folder), small_disk=fill_disk).running() as site:
            sys.exit(1 if watch(site, fill_disk) else 0)


def watch(site: Site, fill_disk: bool) -> int:
    """Has it all happen. How much of what is found is not as promised."""
    click.echo(f"{site.postgres}\n3 nodes behind HAProxy at {site.proxy.url}\n")
    with Holding(
        site.proxy.port, clients=CLIENTS, pause_seconds=PAUSE_SECONDS
    ).going_on() as holding:
        more = [("fill PostgreSQL's disk", lambda: site.fill_disk(FULL_SECONDS))]
        for what, fault in [*faults(site), *(more if fill_disk else [])]:
            time.sleep(BETWEEN_FAULTS_SECONDS)
            began = time.monotonic()
            said = fault()
            click.echo(f"  {what:34} {time.monotonic() - began:5.1f} s   {said}")
    wait_for(lambda: _all_ended(site), END_WITHIN_SECONDS, 0.2)
    return report(site, holding)


def faults(site: Site) -> list[tuple[str, Callable[[], str]]]:
    def kill(number: int) -> tuple[str, Callable[[], str]]:
        return f"kill -9 node {number}", lambda: site.kill(number)

    return [
        kill(0),
        kill(1),
        ("freeze node 2 past its lease", lambda: site.freeze(2, FROZEN_SECONDS)),
        kill(0),
        (
            "freeze node 1 inside a transaction",
            lambda: site.freeze_in_a_transaction(1, FROZEN_SECONDS),
        ),
        kill(2),
        ("restart PostgreSQL", site.restart_postgres),
        kill(1),
        ("cut node 0's connections", lambda: site.cut(0)),
        kill(2),
    ]


def report(site: Site, holding: Holding) -> int:
    """Prints what was found. How much of it is not as promised."""
    names, expired, doubled = map(int, sql(site.database, _ENDS)[0])
    known = {row[0] for row in sql(site.database, "SELECT name FROM reservations")}
    lost = len(holding.held - known) + names - min(expired, names)
    worst_ms = sql(site.database, _WORST)[0][0]
    taken_over = list(_taken_over(site))
    statuses = ", ".join(f"{n:,} x {s}" for s, n in holding.statuses.most_common())
    take_over_ms = max(taken_over, default=0)
    click.echo(f"""
  holds made          {len(holding.held):,} answered with 201 ({names:,} in the log)
  expired once        {expired - doubled:,}
  lost                {lost}
  doubled             {doubled}
  worst lateness      {worst_ms / 1000:.1f} s
  time to take over   {take_over_ms / 1000:.1f} s at most, limit {TAKE_OVER_LIMIT_MS / 1000:g} s
                      (of {len(taken_over)} alarms that a node had in hand when it went)
  answers             {statuses}; the slowest after {holding.slowest_seconds:.1f} s
""")
    verified = subprocess.run(
        [*COMMAND, "log", "verify", "--database", url_of(site.database)], check=False
    )
    wrong = {
        "something was lost or doubled": lost or doubled,
        "nothing expired": not expired,
        "the log does not verify": verified.returncode,
        "taking over took too long": take_over_ms > TAKE_OVER_LIMIT_MS,
        "a 503 came without Retry-After": holding.without_retry_after,
    }
    for what in (what for what, is_so in wrong.items() if is_so):
        click.secho(f"NOT AS PROMISED: {what}", fg="red")
    return sum(map(bool, wrong.values()))


def _taken_over(site: Site) -> Iterator[int]:
    """For each alarm that was begun by one node and ended by another, how long after the
    first one went that was, in ms."""
    for line in (line for node in site.nodes for line in node.alarm_lines()):
        if line.get("lapsed"):
            ended_ms = line["scheduledTime"] + line["latenessMs"]
            yield ended_ms - max(at for at in site.went_ms if at < ended_ms - LEASE_MS / 2)


def _all_ended(site: Site) -> bool:
    return sql(site.database, "SELECT count(*) FROM reservations WHERE status = 'held'") == [(0,)]


if __name__ == "__main__":
    main()
