"""The command line: `reservation-expiry`.

Every option may come from a variable instead (RESERVATION_PORT for --port, and so on).
A user's mistake gets one sentence on standard error and an exit code, never a traceback.
"""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from domain.errors import ReservationExpiryError
from infrastructure.settings import (
    DEFAULT_DATABASE,
    DEFAULT_HOST,
    DEFAULT_PORT,
    SHUTDOWN_GRACE_SECONDS,
    Settings,
)

EXIT_REFUSED = 3  # the database must not or cannot be used
EXIT_CANNOT_LISTEN = 4
MAX_WORKERS = 64
LOG_LEVELS = ("debug", "info", "warning", "error")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("reservation-expiry"), message="%(prog)s %(version)s")
def main() -> None:
    """Reservations that end by themselves: held, alarmed, expired exactly once."""


@main.command()
@click.option("--host", default=DEFAULT_HOST, show_default=True, envvar="RESERVATION_HOST")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    envvar="RESERVATION_PORT",
)
@click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_DATABASE,
    show_default=True,
    envvar="RESERVATION_DATABASE",
    help="SQLite file; made if it is not there.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    default=1,
    show_default=True,
    envvar="RESERVATION_WORKERS",
    help="Server processes on the same database.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    envvar="RESERVATION_LOG_LEVEL",
)
@click.option(
    "--replay-route/--no-replay-route",
    default=True,
    show_default=True,
    envvar="RESERVATION_REPLAY_ROUTE",
    help="Offer POST /reservations/<id>/replay-alarm, a test seam with an explicit clock.",
)
@click.option("--check", is_flag=True, help="Validate everything and start nothing.")
def serve(check: bool, **options: object) -> None:
    """Serve over HTTP until Ctrl-C or SIGTERM; then drain and exit 0."""
    settings = Settings(**options)  # type: ignore[arg-type]
    settings = replace(settings, log_level=settings.log_level.lower())
    from api import server

    server.configure_logging(settings.log_level)
    try:
        server.refuse_taken_address(settings.host, settings.port)
        if check:
            _check(settings)
            return
        _announce(settings)
    except server.CannotListen as error:
        _fail(error, EXIT_CANNOT_LISTEN)
    except ReservationExpiryError as error:
        _fail(error, EXIT_REFUSED)
    server.serve(settings)


def _announce(settings: Settings) -> None:
    from infrastructure.startup import prepare

    prepared = prepare(settings.database)
    overview = prepared.overview
    click.echo(f"reservation-expiry {version('reservation-expiry')}")
    click.echo(f"  serving on   http://{settings.host}:{settings.port}")
    click.echo(f"  database     {settings.database.resolve()}")
    click.echo(f"  open holds   {overview.open_holds}")
    click.echo(f"  next alarm   {_instant(overview.next_alarm_at_ms)}")
    if overview.parked:
        click.echo(f"  parked       {overview.parked} alarms need a look")
    click.echo(f"  stop with Ctrl-C; it drains for at most {SHUTDOWN_GRACE_SECONDS} s")


def _check(settings: Settings) -> None:
    from infrastructure.startup import check

    found = check(settings.database)
    click.echo(f"{settings.host}:{settings.port} is free")
    click.echo(f"{settings.database}: {found}")


def _instant(at_ms: int | None) -> str:
    if at_ms is None:
        return "none"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _fail(error: ReservationExpiryError, code: int) -> None:
    click.echo(f"reservation-expiry: {error}", err=True)
    sys.exit(code)
