"""The command that prints what a shell needs to complete the others."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from reservation_expiry.api.cli.common import Command

PROGRAM = "reservation-expiry"
VARIABLE = "_RESERVATION_EXPIRY_COMPLETE"  # as click reads it when it is to complete
SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(sorted(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    In ~/.bashrc or ~/.zshrc: eval "$(reservation-expiry completion bash)", or zsh. For fish, write
    it into ~/.config/fish/completions/reservation-expiry.fish.
    """
    script = SHELLS[shell](ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    click.echo(script, nl=False)
