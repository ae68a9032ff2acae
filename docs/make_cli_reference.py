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

Every command that takes `--database` works on the file beside a running server. Times are
ISO 8601, a time of today, or Unix milliseconds, and UTC unless an offset is given. `--json`
prints JSON, one document a line. Results go to standard output, everything else to standard
error.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | `log verify` found differences, or something that cannot be read |
| 2 | wrong usage: an unknown option, a value out of range |
| 3 | the database or file cannot be used: missing, foreign, newer, damaged, in use, read-only |
| 4 | `serve` cannot listen on the address |
| 5 | no such reservation or alarm |
| 130 | interrupted: Ctrl-C |

`log export` and `backup` make files for their owner alone, which appear whole or not at all, and
replace what is there with `--force` only: an export an export, a backup a database of ours, and
nothing else ever, whatever is said. Mode, owner and links stay; a device or a pipe is written
to. `restore` replaces a database that holds events with `--force` only, and one that is damaged
too. The target of `restore`, `log import` and `copy` is held from the beginning to the end, so
that no server can write there meanwhile; where there was none, and a server has made one in the
meantime, they are refused. A database of an older release is migrated by `serve` and `worker`;
`backup`, `restore` and `copy` migrate what they make, `log export`, `log digest`, `log diff`,
`events` and `history` read it as it is, and all else says that it must be served once.

An address is the path of a SQLite file, `sqlite:///FILE` or `postgresql://...`, the same in
`--database`, in `RESERVATION_DATABASE` and in make's `DATABASE`; whatever else is given there
is refused. `./NAME` is always a file. **Keep passwords out of the command line**, where every
account of the machine can read them while the process starts, and the shell remembers them:
put the URL into `RESERVATION_DATABASE`, or leave the password out of it and use `PGPASSFILE`,
`PGPASSWORD` or `?service=NAME`. One that is given there all the same is taken out of what `ps`
shows within a moment, with a warning.

Shell completion: put `eval "$(_RESERVATION_EXPIRY_COMPLETE=bash_source reservation-expiry)"`
into `~/.bashrc` (`zsh_source` and `fish_source` for the others).
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
