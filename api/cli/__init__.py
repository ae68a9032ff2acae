"""The command line: `reservation-expiry`.

One module per group of commands; what they share (options, tables, exit codes) is in
`common.py`. Every option may come from a variable instead (RESERVATION_PORT for --port,
and so on). A user's mistake gets one sentence and an exit code, never a traceback.
"""

from importlib.metadata import version

import click

from api.cli.alarms import alarms
from api.cli.backup import backup, restore
from api.cli.common import EXIT_CODES_HELP, Command, Group
from api.cli.log import log
from api.cli.reservations import events, history, hold, list_reservations, show
from api.cli.serve import serve

__all__ = ["Command", "main"]


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(version("reservation-expiry"), message="%(prog)s %(version)s")
def main() -> None:
    """Reservations that end by themselves: held, alarmed, expired exactly once."""


for command in (
    serve,
    hold,
    show,
    history,
    list_reservations,
    events,
    alarms,
    log,
    backup,
    restore,
):
    main.add_command(command)
