"""The command line: `reservation-expiry`.

One module per group of commands; what they share (options, tables, exit codes) is in
`common.py`. A command's module is imported when the command is run, so that serving
does not wait for what only tables and exports need. The settings of `serve`, and --database,
may come from variables (RESERVATION_PORT for --port, and so on). Whatever is wrong on the
command line, in a file or with the database gets one sentence and an exit code, never a
traceback.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from reservation_expiry.infrastructure.machine.redaction import redacted

EXIT_CODES_HELP = (
    "Exit codes: 0 done; 1 differences were found; 2 wrong usage; 3 the database or file "
    "cannot be used; 4 the address cannot be listened on; 5 no such reservation or alarm; "
    "130 interrupted."
)
EXIT_REFUSED = 3
EXIT_INTERRUPTED = 130
COMMANDS = {
    "alarms": "reservation_expiry.api.cli.alarms:alarms",
    "backup": "reservation_expiry.api.cli.backup:backup",
    "completion": "reservation_expiry.api.cli.completion:completion",
    "copy": "reservation_expiry.api.cli.backup:copy",
    "doctor": "reservation_expiry.api.cli.doctor:doctor",
    "events": "reservation_expiry.api.cli.reservations:events",
    "history": "reservation_expiry.api.cli.reservations:history",
    "hold": "reservation_expiry.api.cli.reservations:hold",
    "namespace": "reservation_expiry.api.cli.namespaces:namespace",
    "list": "reservation_expiry.api.cli.reservations:list_reservations",
    "holds": "reservation_expiry.api.cli.holds:holds",
    "items": "reservation_expiry.api.cli.holds:items",
    "log": "reservation_expiry.api.cli.log:log",
    "login": "reservation_expiry.api.cli.login:login",
    "logout": "reservation_expiry.api.cli.login:logout",
    "restore": "reservation_expiry.api.cli.backup:restore",
    "schedule": "reservation_expiry.api.cli.schedules:schedule",
    "serve": "reservation_expiry.api.cli.serve:serve",
    "show": "reservation_expiry.api.cli.reservations:show",
    "tail": "reservation_expiry.api.cli.reservations:tail",
    "token": "reservation_expiry.api.cli.tokens:token",
    "whoami": "reservation_expiry.api.cli.login:whoami",
    "worker": "reservation_expiry.api.cli.serve:worker",
}


class Main(click.Group):
    """All commands; each is imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _whether_it_is_read_or_not():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _whether_it_is_read_or_not():
            return super().invoke(ctx)

    def main(  # type: ignore[override]  # it always exits, so it has one way to be called
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Runs a command line and exits, with one sentence on standard error if it failed."""
        args = sys.argv[1:] if args is None else list(args)
        with _sentences():
            _refuse_what_is_no_text(args)
            code = super().main(args, prog_name, **extra, standalone_mode=False)
        sys.exit(code if type(code) is int else 0)


@contextmanager
def _whether_it_is_read_or_not() -> Iterator[None]:
    """The reader of a pipe that goes away has seen enough: nothing is left to say."""
    try:
        yield
    except BrokenPipeError as error:
        raise click.exceptions.Exit(0) from error


@contextmanager
def _sentences() -> Iterator[None]:
    """Exits when a command fails, having said why, secrets left out."""
    try:
        yield
    except click.UsageError as error:
        usage = "" if error.ctx is None else f"{error.ctx.get_usage()}\n{_hint(error.ctx)}\n"
        _exit(f"{usage}Error: {error.format_message()}", error.exit_code)
    except click.ClickException as error:
        _exit(f"reservation-expiry: {error.format_message()}", error.exit_code)
    except click.Abort:
        _exit("reservation-expiry: interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        _exit(f"reservation-expiry: {sentence_of(error)}", EXIT_REFUSED)


def sentence_of(error: OSError) -> str:
    """What the system says, and of which file."""
    what = os.fsdecode(error.filename) if error.filename else "standard input or output"
    return f"{what}: {(error.strerror or str(error)).lower()}"


def _exit(message: str, code: int) -> NoReturn:
    with suppress(OSError):  # nobody is to be told, and the code says it too
        click.echo(redacted(message), err=True)
    sys.exit(code)


def _hint(ctx: click.Context) -> str:
    return f"Try '{ctx.command_path} {ctx.help_option_names[0]}' for help.\n"


def _refuse_what_is_no_text(args: Sequence[str]) -> None:
    """A byte that is no UTF-8 comes as half a character, which nothing takes further on."""
    for number, word in enumerate(args, start=1):
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in word):
            raise click.UsageError(f"word {number} of the command line is not text in UTF-8")


@click.group(
    cls=Main,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(package_name="reservation-expiry", message="%(prog)s %(version)s")
def main() -> None:
    """Reservations that end by themselves: held, alarmed, expired exactly once."""
