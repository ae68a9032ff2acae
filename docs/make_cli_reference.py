"""Writes docs/cli.md from the commands' own help, so that it cannot lie.

`make docs` runs it; a test holds the file against `reference()`.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from reservation_expiry.api.cli import main

WIDTH = 100
HERE = Path(__file__).parent

INTRODUCTION = """\
# Command line

Made from the commands' own `--help` by `make docs`.

Every command that takes `--database` works beside a running server, except `restore` and
`log import`, which refuse a database that is being served. Times are ISO 8601, a
time of today, or Unix milliseconds, and UTC unless an offset is given. `--json` prints JSON, one
document a line. Results go to standard output, messages and progress to standard error.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | `log verify` found differences, or something that cannot be read |
| 2 | wrong usage: an unknown option, a value out of range |
| 3 | the database or file cannot be used: missing, foreign, newer, damaged, in use, read-only |
| 4 | `serve` cannot listen on the address |
| 5 | no such reservation or alarm |
| 130 | interrupted: Ctrl-C |

`log export` and `backup` create files that only their owner may read, and that appear whole or
not at all. With `--force`, `log export` replaces an export and `backup` replaces a
reservation-expiry database; neither ever replaces any other file. The mode, the owner and the
links of a replaced file stay. A device or a pipe is written to. `restore` replaces a database
that holds events, or one that is damaged, with `--force` only. `restore`, `log import` and `copy`
lock their target from beginning to end, so that no server can write there meanwhile; if the
target did not exist, and a server has created it in the meantime, the command is refused.

`serve` and `worker` migrate a database of an older release. `backup`, `restore` and `copy` migrate
the copy that they make. `log export`, `log digest`, `log diff`, `events` and `history` read the
older database as it is. Every other command refuses it, with a message that it must be served
once.

An address is the path of a SQLite file, `sqlite:///FILE` or `postgresql://...`, the same in
`--database`, in `RESERVATION_DATABASE` and in make's `DATABASE`; any other address is refused.
`./NAME` is always a file. **Keep passwords out of the command line**, where every
account of the machine can read them while the process starts, and the shell remembers them:
put the URL into `RESERVATION_DATABASE`, or leave the password out of it and use `PGPASSFILE`,
`PGPASSWORD` or `?service=NAME`. A password that is given on the command line all the same is
removed from what `ps` shows some 30 ms after the process began, with a warning.

Shell completion: put `eval "$(reservation-expiry completion bash)"` into `~/.bashrc`, the same with
`zsh` into `~/.zshrc`, or `reservation-expiry completion fish` into
`~/.config/fish/completions/reservation-expiry.fish`.
"""


def reference() -> str:
    """The whole document."""
    sections = (f"## {path}\n\n```\n{text}\n```\n" for path, text in _helps(main, "", None))
    return INTRODUCTION + "\n" + "\n".join(sections)


def _helps(
    command: click.Command, path: str, parent: click.Context | None
) -> Iterator[tuple[str, str]]:
    name = "reservation-expiry" if parent is None else command.name
    path = f"{path} {name}".strip()
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            yield from _helps(command.get_command(context, child), path, context)


if __name__ == "__main__":
    (HERE / "cli.md").write_text(reference())
