"""The log as a tool: verify, rebuild, export, import, digest, replay, diff."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import click

from reservation_expiry.api.cli.common import (
    EXIT_DIFFERENT,
    Command,
    File,
    Instant,
    application,
    database_option,
    force_option,
    instant,
    json_option,
    print_json,
    queries,
)
from reservation_expiry.api.cli.output import print_table, progress
from reservation_expiry.api.rendering import render
from reservation_expiry.domain.ids import name_of
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.backup import import_log
from reservation_expiry.infrastructure.replay.comparison import Difference
from reservation_expiry.infrastructure.replay.diff import diff as diff_log
from reservation_expiry.infrastructure.replay.parallel import events_in, verify_with_all_cores
from reservation_expiry.infrastructure.replay.rebuild import rebuild as rebuild_projections
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.opening import opened
from reservation_expiry.infrastructure.stores.sql.queries import Queries


@click.group()
def log() -> None:
    """Check, rebuild, move and replay the log of events."""


@log.command(cls=Command)
@database_option
@json_option
def verify(database: Address, as_json: bool) -> None:
    """Check the log and everything projected from it; exit 1 if anything differs."""
    started = time.perf_counter()
    with opened(database) as store, progress("verifying", 2 * events_in(store)) as advance:
        report = verify_with_all_cores(store, advance)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(
            {
                "ok": report.found == 0,
                "events": report.events,
                "aggregates": report.aggregates,
                "head": report.head,
                "digest": report.digest,
                "found": report.found,
                "differences": report.differences,
                "seconds": round(seconds, 3),
            }
        )
    else:
        _print_differences(report.differences, report.found)
        word = "verified" if report.found == 0 else f"{report.found} differences in"
        click.echo(
            f"{word} {report.events:,} events of {report.aggregates:,} aggregates "
            f"in {_pace(report.events, seconds)}"
        )
    if report.found:
        raise SystemExit(EXIT_DIFFERENT)


@log.command(cls=Command)
@database_option
@json_option
def rebuild(database: Address, as_json: bool) -> None:
    """Make the read model and the alarms follow from the log again, beside a server."""
    started = time.perf_counter()
    with application(database) as running, _rebuilding(running) as advance:
        report = rebuild_projections(running.writer.execute, running.mapper, advance)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(
            {
                "events": report.events,
                "aggregates": report.aggregates,
                "mended": report.repaired,
                "differences": report.differences,
                "seconds": round(seconds, 3),
            }
        )
        return
    _print_differences(report.differences, report.repaired)
    click.echo(
        f"{report.repaired:,} differences repaired from {report.events:,} events "
        f"in {_pace(report.events, seconds)}"
    )


@log.command(name="export", cls=Command)
@click.argument("file", type=File())
@force_option
@database_option
def export(file: str, force: bool, database: Address) -> None:
    """Write the log as JSON Lines to FILE (gzip if it ends in .gz; - for standard output).

    An export that is there is replaced with --force only, a file of anything else never; a
    device or a pipe is written to.
    """
    started = time.perf_counter()
    with (
        opened(database, log_only=True) as store,
        progress("exporting", Queries(store).head().position) as advance,
    ):
        events = export_log(store, file, advance, force=force)
    with suppress(OSError):  # what counts was written
        click.echo(f"{events:,} events in {_pace(events, time.perf_counter() - started)}", err=True)


@log.command(name="import", cls=Command)
@click.argument("file", type=File())
@database_option
def import_(file: str, database: Address) -> None:
    """Make the database from an exported log; changes nothing if anything in it is wrong."""
    started = time.perf_counter()
    with progress("importing", None) as advance:
        report = import_log(file, database, advance)
    click.echo(
        f"{report.events:,} events in {_pace(report.events, time.perf_counter() - started)}, "
        f"digest {report.digest}"
    )


@log.command(cls=Command)
@database_option
def digest(database: Address) -> None:
    """Print the digest of the log: equal for logs with the same events in the same order."""
    with queries(database, log_only=True) as asked:
        click.echo(asked.digest())


@log.command(cls=Command)
@click.argument("name")
@click.option("--now", "now_ms", type=Instant(), required=True, help="The clock to expire by.")
@click.option("--times", type=click.IntRange(1, 1000), default=1, show_default=True)
@database_option
@json_option
def replay(name: str, now_ms: int, times: int, database: Address, as_json: bool) -> None:
    """Take NAME's expiry path with an explicit clock, as the replay-alarm route does."""
    with application(database) as running:
        for _ in range(times):
            state, changed = running.expire(name, now_ms)
            body = {**render(name, state), "changed": changed}
            if as_json:
                print_json(body)
            else:
                click.echo(
                    f"changed {str(changed).lower():5}  {body['status']}, "
                    f"expiration count {body.get('expirationCount', 0)}"
                )


@log.command(cls=Command)
@click.option("--from", "from_ms", type=Instant(), required=True)
@click.option("--to", "to_ms", type=Instant(), required=True)
@database_option
@json_option
def diff(from_ms: int, to_ms: int, database: Address, as_json: bool) -> None:
    """List the holds that began, ended or moved between two times."""
    if to_ms < from_ms:
        raise click.UsageError("--to lies before --from")
    with queries(database, log_only=True) as asked:
        for change in diff_log(asked, EventMapper(), from_ms, to_ms):
            if as_json:
                print_json(change)
            else:
                click.echo(
                    f"{instant(change.at_ms)}  {change.what:6} {change.name}"
                    f"  ({change.position}: {change.detail})"
                )


def _rebuilding(running: ReservationApplication) -> AbstractContextManager[Callable[[int], None]]:
    return progress("rebuilding", running.queries.head().position)


def _print_differences(differences: list[Difference], found: int) -> None:
    if not differences:
        return
    print_table(
        ("POSITION", "ID", "PROBLEM"),
        [(d.position, name_of(d.originator_id), d.problem) for d in differences],
    )
    if found > len(differences):
        click.echo(f"... and {found - len(differences):,} more")


def _pace(events: int, seconds: float) -> str:
    return f"{seconds:.1f} s ({events / max(seconds, 1e-9):,.0f} events/s)"
