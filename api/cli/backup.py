"""Commands on whole databases: backup, restore, copy."""

from pathlib import Path

import click

from reservation_expiry.api.cli.common import (
    Command,
    Database,
    DatabaseFile,
    database_option,
    force_option,
)
from reservation_expiry.api.cli.output import progress
from reservation_expiry.infrastructure.replay import backup as backups
from reservation_expiry.infrastructure.stores.address import Address


@click.command(cls=Command)
@click.argument("file", type=DatabaseFile())
@force_option
@database_option
def backup(file: Path, force: bool, database: Address) -> None:
    """Copy the database to FILE, verified, while it is served.

    A backup that is there is replaced with --force only, a file of anything else never.
    """
    with progress("verifying the copy", None) as advance:
        report = backups.backup(database, file, advance, force=force)
    click.echo(f"{file}: {report.events:,} events, digest {report.digest}")


@click.command(cls=Command)
@click.argument("file", type=DatabaseFile())
@force_option
@database_option
def restore(file: Path, force: bool, database: Address) -> None:
    """Put the backup FILE in the database's place, verified. The server must be stopped.

    A database that holds events is replaced with --force only, a file of anything else never.
    """
    with progress("verifying the copy", None) as advance:
        report = backups.restore(file, database, advance, force=force)
    click.echo(f"{database}: {report.events:,} events, digest {report.digest}")


@click.command(cls=Command)
@click.option(
    "--from", "source", type=Database(), required=True, help="The database whose log is copied."
)
@click.option(
    "--to",
    "target",
    type=Database(),
    required=True,
    help="The database to write, which must not hold events.",
)
def copy(source: Address, target: Address) -> None:
    """Copy a log to another database, SQLite or PostgreSQL, verified.

    Both are a SQLite file (sqlite:///FILE or FILE) or a postgresql:// URL. What is
    committed to the first after the copy has begun is not in it.
    """
    with progress("copying", None) as advance:
        report = backups.copy_log(source, target, advance)
    click.echo(f"{target}: {report.events:,} events, digest {report.digest}")
