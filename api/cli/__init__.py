"""The command line: `reservation-expiry`.

One module per group of commands; what they share (options, tables, exit codes) is in
`common.py`. A command's module is imported when the command is run, so that serving
does not wait for what only tables and exports need. The settings of `serve`, and --database,
may come from variables (RESERVATION_PORT for --port, and so on). A user's mistake gets
one sentence and an exit code, never a traceback.
"""

import re
import sys
from importlib import import_module

import click

from infrastructure.address import address_of

EXIT_CODES_HELP = (
    "Exit codes: 0 done; 1 differences were found; 2 wrong usage; 3 the database or file "
    "cannot be used; 4 the address cannot be listened on; 5 no such reservation or alarm."
)
COMMANDS = {
    "alarms": "api.cli.alarms:alarms",
    "backup": "api.cli.backup:backup",
    "copy": "api.cli.backup:copy",
    "events": "api.cli.reservations:events",
    "history": "api.cli.reservations:history",
    "hold": "api.cli.reservations:hold",
    "list": "api.cli.reservations:list_reservations",
    "log": "api.cli.log:log",
    "restore": "api.cli.backup:restore",
    "schedule": "api.cli.schedules:schedule",
    "serve": "api.cli.serve:serve",
    "show": "api.cli.reservations:show",
    "worker": "api.cli.serve:worker",
}


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        return getattr(import_module(module), name)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(package_name="reservation-expiry", message="%(prog)s %(version)s")
def main() -> None:
    """Reservations that end by themselves: held, alarmed, expired exactly once."""
    _hide_passwords()


_URL = re.compile(r"postgres(?:ql)?://.*", re.DOTALL)


def _hide_passwords() -> None:
    """Whoever lists this machine's processes sees no password that was given in a URL."""
    shown = [_URL.sub(lambda url: str(address_of(url[0])), word) for word in sys.argv]
    if shown != sys.argv:
        from setproctitle import setproctitle

        setproctitle(" ".join(shown))
