"""What the commands share: options, the application on a file, output, exit codes."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from reservation_expiry.api.cli import EXIT_REFUSED
from reservation_expiry.domain.alarm import looks_like_seconds
from reservation_expiry.domain.errors import DomainError, ReservationExpiryError
from reservation_expiry.domain.ids import is_name
from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.errors import InvalidAddress
from reservation_expiry.infrastructure.instants import datetime_of_ms, ms_of_datetime
from reservation_expiry.infrastructure.settings import DEFAULT_DATABASE
from reservation_expiry.infrastructure.stores.address import (
    DEFAULT_NAMESPACE,
    Address,
    PostgresAddress,
    address_of,
    file_named,
    namespaced,
    refuse_no_file,
)
from reservation_expiry.infrastructure.stores.opening import opened
from reservation_expiry.infrastructure.stores.sql.queries import Queries

if TYPE_CHECKING:  # most commands only ask
    from reservation_expiry.infrastructure.application import ReservationApplication

EXIT_DIFFERENT = 1
EXIT_CANNOT_LISTEN = 4
EXIT_NOT_FOUND = 5


# Counts and positions; more cannot be asked for in JSON either.
COUNT = click.IntRange(1, 2**53 - 1)


if TYPE_CHECKING:
    Parameter = click.ParamType[Any, Any]
else:
    Parameter = click.ParamType  # which is generic in the newest releases only


class Failed(click.ClickException):
    """Ends the command with a sentence and an exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.exit_code = code  # type: ignore[misc]  # click asks the instance, as we do


NAMESPACE = "namespace"  # where a command's context has its name


class Command(click.Command):
    """A command whose errors, when they are ours, are one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            _choose_namespace(ctx)
            return super().invoke(ctx)
        except DomainError as error:
            raise click.UsageError(str(error), ctx) from error
        except ReservationExpiryError as error:
            raise Failed(str(error), exit_code_of(error)) from error


def _choose_namespace(ctx: click.Context) -> None:
    """A command is given one address: the database's, or a namespace's beside it."""
    name = ctx.params.pop("namespace", None) or DEFAULT_NAMESPACE
    address = ctx.params.get("database")
    if address is not None:
        ctx.params["database"] = namespaced(address, name)
    ctx.meta[NAMESPACE] = name


def exit_code_of(error: ReservationExpiryError) -> int:
    return EXIT_CANNOT_LISTEN if error.code == "cannot-listen" else EXIT_REFUSED


def fail(sentence: str, code: int = EXIT_REFUSED) -> NoReturn:
    raise Failed(sentence, code)


def undeclared(namespace: str) -> str:
    return (
        f"there is no namespace {namespace}: declare it with "
        f"`reservation-expiry namespace create {namespace}`"
    )


class Database(Parameter):
    """Where the data is: a SQLite file, or a PostgreSQL URL. Converts to an Address."""

    name = "database"

    def convert(self, value: Any, param: Any, ctx: Any) -> Address:
        try:
            return value if isinstance(value, PostgresAddress) else address_of(str(value))
        except InvalidAddress as error:
            self.fail(str(error), param, ctx)


class Namespace(Parameter):
    """The name of a namespace. Converts to str."""

    name = "name"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if not is_name(value):
            self.fail(
                f"{value!r} is not a namespace's name: use 3-40 lowercase letters, digits or "
                "hyphens, with no hyphen at either end",
                param,
                ctx,
            )
        return str(value)


class File(Parameter):
    """A file to be written or read, `-` for standard output or input. Converts to str."""

    name = "file"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        try:
            return value if value == "-" else str(file_named(value))
        except InvalidAddress as error:
            self.fail(str(error), param, ctx)


class SourceFile(Parameter):
    """A file that is there, and that each process reads for itself. Converts to a Path."""

    name = "file"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        try:
            path = file_named(str(value))
            refuse_no_file(path)
        except InvalidAddress as error:
            self.fail(str(error), param, ctx)
        if not path.is_file():
            self.fail(f"there is no file {path}", param, ctx)
        return path


class DatabaseFile(Database):
    """A database that is a file. Converts to a Path."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        address = super().convert(value, param, ctx)
        if isinstance(address, PostgresAddress):
            self.fail("a PostgreSQL database is not a file: give a SQLite file", param, ctx)
        return address


class DatabaseOption(click.Option):
    """An option whose variable means the same as the option, set to nothing as well."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return os.environ.get(str(self.envvar))


namespace_option = click.option(
    "--namespace",
    type=Namespace(),
    metavar="NAME",
    envvar="RESERVATION_NAMESPACE",
    help="A namespace beside the database (namespace create); else the database itself.",
)


def database_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return base_option(namespace_option(command))


def base_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The database without any of its namespaces."""
    return click.option(
        "--database",
        cls=DatabaseOption,
        type=Database(),
        default=DEFAULT_DATABASE,
        show_default=True,
        envvar="RESERVATION_DATABASE",
        show_envvar=True,
        help="SQLite file, or postgresql:// URL.",
    )(command)


def force_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--force", is_flag=True, help="Replace a file or database that exists.")(
        command
    )


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one document a line.")(
        command
    )


@contextmanager
def queries(address: Address, *, log_only: bool = False) -> Iterator[Queries]:
    """For commands that only ask."""
    with opened(address, log_only=log_only) as store:
        yield Queries(store)


@contextmanager
def queries_and_clock(address: Address) -> Iterator[tuple[Queries, Clock]]:
    """The same, where what is shown depends on the time."""
    with opened(address) as store:
        yield Queries(store), store.clock


@contextmanager
def application(address: Address) -> "Iterator[ReservationApplication]":
    """For commands that change something, beside a running server or without one.

    The alarms are left to a server.
    """
    with opened(address, to_write=True):
        pass
    from reservation_expiry.infrastructure.application import ReservationApplication

    running = ReservationApplication(address)
    running.start(alarms=False)
    try:
        yield running
    finally:
        running.stop()


def print_json(value: object) -> None:
    click.echo(msgspec.json.encode(value))


def shown_name(found: dict[str, Any]) -> str:
    """seat-12, or Counter/foo, from what `named` tells programs."""
    if "className" in found:
        return f"{found['className']}/{found['objectName']}"
    name: str = found["reservationId"]
    return name


def instant(at_ms: int | None) -> str | None:
    """2026-11-29T14:03:07.250Z"""
    if at_ms is None:
        return None
    try:
        at = datetime_of_ms(at_ms)
    except OverflowError:
        return f"{at_ms} ms"  # beyond the year 9999, as an explicit clock may be
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Instant(Parameter):
    """A point in time: ISO 8601, a time of today, or Unix milliseconds. UTC unless it
    says otherwise. Converts to Unix milliseconds."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        if re.fullmatch("[0-9]{9,16}", value):
            return self._milliseconds(int(value), param, ctx)
        try:
            at = _today_at(value) or datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time: use 2026-11-29T14:03:07.250, 14:03:07 (today) or "
                "Unix milliseconds; UTC unless an offset is given",
                param,
                ctx,
            )
        return ms_of_datetime(at if at.tzinfo else at.replace(tzinfo=UTC))

    def _milliseconds(self, at_ms: int, param: Any, ctx: Any) -> int:
        if looks_like_seconds(at_ms):
            self.fail(
                f"{at_ms} looks like a time in seconds, and is taken for milliseconds: "
                f"give {at_ms}000",
                param,
                ctx,
            )
        return at_ms


def _today_at(text: str) -> datetime | None:
    try:
        at = time.fromisoformat(text) if ":" in text[:3] else None
    except ValueError:
        return None
    if at is None:
        return None
    return datetime.combine(datetime.now(UTC).date(), at, at.tzinfo or UTC)
