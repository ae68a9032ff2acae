"""The commands that serve: reservations, or a file of durable objects."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reservation_expiry.api.cli.common import (
    NAMESPACE,
    Command,
    Database,
    DatabaseOption,
    Parameter,
    SourceFile,
    fail,
    instant,
    namespace_option,
    print_json,
    undeclared,
)
from reservation_expiry.infrastructure.settings import (
    DEFAULT_DATABASE,
    DEFAULT_HOST,
    DEFAULT_PORT,
    KEPT_ATTEMPTS,
    SHUTDOWN_GRACE_SECONDS,
    Settings,
)
from reservation_expiry.infrastructure.stores.address import DEFAULT_NAMESPACE, Address

if TYPE_CHECKING:  # what serves is loaded by the commands that serve
    from socket import socket

    from reservation_expiry.api.processes import RunProcess
    from reservation_expiry.infrastructure.startup import Prepared

MAX_WORKERS = 64
MOST_HOLD_SECONDS = 30 * 86_400
MOST_KEPT_ATTEMPTS = 10_000_000
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


SERVER_OPTIONS = (
    click.option("--host", default=DEFAULT_HOST, show_default=True, envvar="RESERVATION_HOST"),
    click.option(
        "--port",
        type=click.IntRange(1, 65535),
        default=DEFAULT_PORT,
        show_default=True,
        envvar="RESERVATION_PORT",
    ),
    click.option(
        "--database",
        cls=DatabaseOption,
        type=Database(),
        default=DEFAULT_DATABASE,
        show_default=True,
        envvar="RESERVATION_DATABASE",
        help="SQLite file, created if it does not exist, or postgresql:// URL.",
    ),
    namespace_option,
    click.option(
        "--workers",
        type=click.IntRange(1, MAX_WORKERS),
        default=1,
        show_default=True,
        envvar="RESERVATION_WORKERS",
        help="Server processes on the same database.",
    ),
    click.option(
        "--allow-host",
        "allow_hosts",
        multiple=True,
        metavar="NAME",
        envvar="RESERVATION_ALLOW_HOST",
        help="A name this service has besides localhost, as behind a proxy. May be repeated.",
    ),
    click.option(
        "--insecure",
        is_flag=True,
        envvar="RESERVATION_INSECURE",
        help="Listen beyond loopback although whoever reaches the port may do everything.",
    ),
    click.option(
        "--auth",
        type=click.Choice(("off", "required")),
        default="off",
        show_default=True,
        envvar="RESERVATION_AUTH",
        help="Whether a request needs a token of this database (token create).",
    ),
    click.option(
        "--kept-attempts",
        type=click.IntRange(1_000, MOST_KEPT_ATTEMPTS),
        default=KEPT_ATTEMPTS,
        show_default=True,
        envvar="RESERVATION_KEPT_ATTEMPTS",
        help="Of how many attempts at alarms it is kept how they ended, the newest.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        envvar="RESERVATION_LOG_LEVEL",
    ),
    click.option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        default="text",
        show_default=True,
        envvar="RESERVATION_LOG_FORMAT",
        help="json: one document a line, with the id of the request that it is of.",
    ),
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(SERVER_OPTIONS):
        command = option(command)
    return command


class Prefix(Parameter):
    """Below what path the service's own routes are."""

    name = "path"

    def convert(self, value: str, param: Any, ctx: Any) -> str:
        from reservation_expiry.api.prefixed import PREFIX, PREFIX_RULE

        if not PREFIX.fullmatch(value):
            self.fail(f"{value!r} is not {PREFIX_RULE}", param, ctx)
        return value


config_option = click.option(
    "--config",
    type=SourceFile(),
    help="TOML with [[durable_objects.bindings]] and [vars]; else AlarmExample is ALARM_EXAMPLE.",
)


@click.command(cls=Command)
@server_options
@click.option(
    "--replay-route/--no-replay-route",
    default=True,
    show_default=True,
    envvar="RESERVATION_REPLAY_ROUTE",
    help="Offer POST /reservations/<id>/replay-alarm, a test seam with an explicit clock.",
)
@click.option(
    "--longest-hold",
    "longest_hold_seconds",
    type=click.IntRange(1, MOST_HOLD_SECONDS),
    default=86_400,
    show_default=True,
    envvar="RESERVATION_LONGEST_HOLD",
    help="Seconds beyond which no hold with terms lasts, however often it is extended.",
)
@click.option(
    "--objects",
    type=SourceFile(),
    metavar="FILE",
    help="Serve the durable objects of FILE, as `worker FILE` does.",
)
@config_option
@click.option(
    "--service-prefix",
    type=Prefix(),
    envvar="RESERVATION_SERVICE_PREFIX",
    help="Keep the service's own routes below this path, beside those of FILE.",
)
@click.option("--check", is_flag=True, help="Validate everything and start nothing.")
def serve(
    objects: Path | None,
    config: Path | None,
    service_prefix: str | None,
    check: bool,
    **options: Any,
) -> None:
    """Serve over HTTP until Ctrl-C or SIGTERM; then drain and exit 0."""
    if objects is None and (config or service_prefix):
        raise click.UsageError("--config and --service-prefix go with --objects FILE")
    settings = _settings(options)
    load = (
        _service(settings)
        if objects is None
        else _objects(settings, objects, config, service_prefix)
    )
    with _listening(settings) as sockets:
        if check:
            _check(settings)
        else:
            _serve(settings, load, sockets)


@click.command(cls=Command)
@click.argument("file", type=SourceFile())
@server_options
@config_option
def worker(file: Path, config: Path | None, **options: Any) -> None:
    """Serve FILE, Python written with `from workers import DurableObject` (docs/alarms.md)."""
    settings = _settings(options)
    load = _objects(settings, file, config)
    with _listening(settings) as sockets:
        _serve(settings, load, sockets)


def _service(settings: Settings) -> "Callable[[], RunProcess]":
    from reservation_expiry.api.server import open_service
    from reservation_expiry.api.server import serve as serve_process

    run = partial(serve_process, settings, open_service(settings))
    return lambda: run


def _objects(
    settings: Settings, file: Path, config: Path | None, prefix: str | None = None
) -> "Callable[[], RunProcess]":
    """What reads the file anew each time; what is wrong with it now is said at once."""
    from reservation_expiry.api.prefixed import open_both
    from reservation_expiry.api.server import serve as serve_process
    from reservation_expiry.api.worker import open_worker, read_worker

    def load() -> "RunProcess":
        source = read_worker(file, config)
        opened = (
            open_worker(source, settings) if prefix is None else open_both(source, settings, prefix)
        )
        return partial(serve_process, settings, opened)

    load()
    return load


@contextmanager
def _listening(settings: Settings) -> Iterator["list[list[socket]]"]:
    """The sockets of each process, closed at the end."""
    from reservation_expiry.api.processes import listen

    sockets = listen(settings.host, settings.port, settings.workers)
    try:
        yield sockets
    finally:
        for listener in chain.from_iterable(sockets):
            listener.close()


def _serve(
    settings: Settings, load: "Callable[[], RunProcess]", sockets: "list[list[socket]]"
) -> None:
    """Prepares the database, starts the processes, says so, and stays until they end."""
    from reservation_expiry.api.processes import Parent
    from reservation_expiry.infrastructure.startup import prepare

    prepared = prepare(settings.database)
    with _metrics_folder():
        code = Parent(load, sockets).serve(partial(_announce, settings, prepared))
    sys.exit(code)


@contextmanager
def _metrics_folder() -> Iterator[None]:
    from reservation_expiry.api.metrics_folder import metrics_folder

    with ExitStack() as stack:
        try:
            stack.enter_context(metrics_folder())
        except OSError as error:
            fail(
                f"the metrics need a folder for temporary files ({error.strerror}): name one "
                "that can be written to in TMPDIR"
            )
        yield


def _settings(options: dict[str, Any]) -> Settings:
    from reservation_expiry.api.logs import configure_logging

    settings = Settings(**options, namespace=click.get_current_context().meta[NAMESPACE])
    settings = replace(settings, log_level=settings.log_level.lower())
    configure_logging(settings.log_level, settings.log_format)
    _refuse_exposure(settings)
    _refuse_undeclared(settings)
    return settings


def _refuse_undeclared(settings: Settings) -> None:
    """A namespace is made by a command of its own: a name with a slip in it makes none."""
    from reservation_expiry.infrastructure.namespaces import is_declared

    if settings.namespace != DEFAULT_NAMESPACE and not is_declared(settings.database):
        fail(undeclared(settings.namespace))


def _refuse_exposure(settings: Settings) -> None:
    from reservation_expiry.api.access import is_loopback

    has_guard = settings.auth == "required" or settings.insecure
    if not has_guard and not is_loopback(settings.host):
        raise click.UsageError(
            f"{settings.host} can be reached by other machines, and whoever reaches it may do "
            "everything: ask them for tokens (--auth required), listen on 127.0.0.1 behind a proxy "
            "that asks who it is (docs/operate/nginx.conf), or give --insecure"
        )


def _announce(settings: Settings, prepared: "Prepared") -> None:
    overview = prepared.overview
    if settings.log_format == "json":
        return print_json(
            {
                "event": "serving",
                "version": version("reservation-expiry"),
                "url": f"http://{settings.host}:{settings.port}",
                "database": str(_where(settings.database)),
                "openHolds": overview.open_holds,
                "nextAlarmAt": overview.next_alarm_at_ms,
                "parked": overview.parked,
            }
        )
    click.echo(f"reservation-expiry {version('reservation-expiry')}")
    click.echo(f"  serving on   http://{settings.host}:{settings.port}")
    click.echo(f"  database     {_where(settings.database)}")
    click.echo(f"  open holds   {overview.open_holds}")
    click.echo(f"  next alarm   {instant(overview.next_alarm_at_ms) or 'none'}")
    if overview.parked:
        click.echo(f"  parked       {overview.parked} alarms (alarms list --parked)")
    click.echo(f"  stop with Ctrl-C; it drains for at most {SHUTDOWN_GRACE_SECONDS} s")


def _where(address: Address) -> Address:
    return address.resolve() if isinstance(address, Path) else address


def _check(settings: Settings) -> None:
    from reservation_expiry.infrastructure.startup import check

    found = check(settings.database)
    click.echo(f"{settings.host}:{settings.port} is free")
    click.echo(f"{settings.database}: {found}")
