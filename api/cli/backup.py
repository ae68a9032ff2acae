"""Commands on whole databases: backup and restore."""

from pathlib import Path

import click

from api.cli.common import Command, database_option
from api.cli.output import progress
from infrastructure import backup as backups

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.argument("file", type=FILE)
@database_option
def backup(file: Path, database: Path) -> None:
    """Copy the database to FILE, verified, while it is served."""
    with progress("verifying the copy", None) as advance:
        report = backups.backup(database, file, advance)
    click.echo(f"{file}: {report.events:,} events, digest {report.digest}")


@click.command(cls=Command)
@click.argument("file", type=FILE)
@database_option
def restore(file: Path, database: Path) -> None:
    """Put the backup FILE in the database's place, verified. The server must be stopped."""
    with progress("verifying the copy", None) as advance:
        report = backups.restore(file, database, advance)
    click.echo(f"{database}: {report.events:,} events, digest {report.digest}")
