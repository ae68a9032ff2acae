"""What the commands share: options, the application on a file, output, exit codes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import click
import msgspec

from domain.errors import DomainError, ReservationExpiryError
from infrastructure.application import ReservationApplication
from infrastructure.errors import DatabaseRefused, NewerSchema
from infrastructure.settings import DEFAULT_DATABASE
from infrastructure.sqlite.database import Database
from infrastructure.sqlite.queries import Queries
from infrastructure.sqlite.schema import MIGRATIONS, schema_version

EXIT_DIFFERENT = 1
EXIT_USAGE = 2  # click's own
EXIT_REFUSED = 3
EXIT_CANNOT_LISTEN = 4
EXIT_NOT_FOUND = 5


class Command(click.Command):
    """A command whose errors, when they are ours, are one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DomainError as error:
            raise click.UsageError(str(error), ctx) from error
        except ReservationExpiryError as error:
            fail(str(error), exit_code_of(error))
        except BrokenPipeError:
            sys.stderr.close()  # the reader went away; nothing is left to say
            sys.exit(0)
        except OSError as error:
            fail(f"{error.filename or 'file'}: {(error.strerror or str(error)).lower()}")


def exit_code_of(error: ReservationExpiryError) -> int:
    return EXIT_CANNOT_LISTEN if error.code == "cannot-listen" else EXIT_REFUSED


def fail(sentence: str, code: int = EXIT_REFUSED) -> None:
    click.echo(f"reservation-expiry: {sentence}", err=True)
    sys.exit(code)


def database_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--database",
        type=click.Path(dir_okay=False, path_type=Path),
        default=DEFAULT_DATABASE,
        show_default=True,
        envvar="RESERVATION_DATABASE",
        show_envvar=True,
        help="The SQLite file.",
    )(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")(command)


def opened(path: Path) -> Database:
    """The database at `path`, which must be there and of this release's schema."""
    if not path.exists():
        raise DatabaseRefused(f"there is no database at {path}")
    database = Database(path)
    version = schema_version(database)
    if version < len(MIGRATIONS):
        raise NewerSchema(
            f"{path} has schema {version}, this release needs {len(MIGRATIONS)}: "
            "serve it once to migrate it"
        )
    return database


@contextmanager
def queries(path: Path) -> Iterator[Queries]:
    """For commands that only ask."""
    database = opened(path)
    try:
        yield Queries(database)
    finally:
        database.close()


@contextmanager
def application(path: Path) -> Iterator[ReservationApplication]:
    """For commands that change something, beside a running server or without one.

    The alarms are left to a server.
    """
    opened(path).close()
    running = ReservationApplication(path)
    running.start(alarms=False)
    try:
        yield running
    finally:
        running.stop()


def print_json(value: object) -> None:
    click.echo(msgspec.json.encode(value))


def instant(at_ms: int | None) -> str | None:
    """2026-11-29T14:03:07.250Z"""
    if at_ms is None:
        return None
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError):
        return f"{at_ms} ms"  # beyond the year 9999, as an explicit clock may be
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Instant(click.ParamType):
    """A point in time: ISO 8601, a time of today, or Unix milliseconds. UTC unless it
    says otherwise. Converts to Unix milliseconds."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        if value.isdigit() and 8 < len(value) <= 16:
            return int(value)
        try:
            at = _today_at(value) or datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time: use 2026-11-29T14:03:07.250, 14:03:07 (today) or "
                "Unix milliseconds; UTC unless an offset is given",
                param,
                ctx,
            )
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _today_at(text: str) -> datetime | None:
    try:
        at = time.fromisoformat(text) if ":" in text[:3] else None
    except ValueError:
        return None
    return at and datetime.combine(datetime.now(UTC).date(), at, at.tzinfo or UTC)
