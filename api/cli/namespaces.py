"""Commands on namespaces: each is a store of its own, beside a database."""

from dataclasses import asdict
from typing import Any

import click

from reservation_expiry.api.cli.common import (
    Command,
    Namespace,
    base_option,
    fail,
    instant,
    json_option,
    print_json,
    undeclared,
)
from reservation_expiry.api.cli.output import print_table
from reservation_expiry.infrastructure.namespaces import (
    Described,
    Tombstone,
    declare,
    delete,
    describe,
    listed,
)
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress, namespaced

CLASS, BINDING = "ReservationExpiry", "RESERVATIONS"  # as the original's Worker names them
HEADINGS = ("NAME", "STATE", "LOG", "RESERVATIONS", "OPEN", "PARKED", "HEAD")


@click.group()
def namespace() -> None:
    """Declare, look at and delete namespaces, each a store of its own beside a database."""


@namespace.command(cls=Command)
@click.argument("name", type=Namespace())
@base_option
def create(name: str, database: Address) -> None:
    """Declare the namespace NAME, or begin it anew where it was deleted."""
    address = namespaced(database, name)
    word = "Created" if declare(address) else "Exists"
    click.echo(f"{word}: {name}: {address}")


@namespace.command("list", cls=Command)
@base_option
@json_option
def list_namespaces(database: Address, as_json: bool) -> None:
    """List the namespaces beside a database, the database itself as `default`."""
    found = listed(database)
    if as_json:
        for name, what in found:
            print_json(_shown(name, what, namespaced(database, name)))
        return
    print_table(HEADINGS, [_row(name, what) for name, what in found])


@namespace.command(cls=Command)
@click.argument("name", type=Namespace())
@base_option
@json_option
def show(name: str, database: Address, as_json: bool) -> None:
    """Show what stands in the namespace NAME, and who serves it."""
    address = namespaced(database, name)
    found = describe(address)
    if found is None:
        fail(undeclared(name))
    shown = _shown(name, found, address)
    if as_json:
        print_json(shown)
        return
    for key, value in shown.items():
        click.echo(f"{key + ':':14}{_text(value)}")


@namespace.command("delete", cls=Command)
@click.argument("name", type=Namespace())
@click.option("--yes", metavar="NAME", help="The name again, instead of being asked for it.")
@base_option
def delete_namespace(name: str, yes: str | None, database: Address) -> None:
    """Delete all that stands in the namespace NAME: its log, its alarms, its tokens.

    What serves it answers 410 within a second. Nothing brings it back but a backup.
    """
    address = namespaced(database, name)
    if describe(address) is None:
        fail(undeclared(name))
    if yes is None:
        yes = click.prompt(f"All of {address} will be gone. Type {name} to delete it", type=str)
    if yes != name:
        raise click.UsageError(f"{yes!r} is not {name!r}: nothing was deleted")
    gone = delete(address)
    click.echo(f"Deleted: {name}: {_what_was(gone)}")


def _shown(name: str, found: Described, address: Address) -> dict[str, Any]:
    is_server = isinstance(address, PostgresAddress)
    shown: dict[str, Any] = {
        "namespace": name,
        "status": "active" if found.tombstone is None else "deleted",
        "logId": found.log_id,
        "class": CLASS,
        "binding": BINDING,
        "storage": "postgresql" if is_server else "sqlite",
        "address": str(address),
        "schema": found.schema,
        "head": found.head,
        "reservations": found.reservations,
        "objects": found.objects,
        "open": found.open,
        "pending": found.pending,
        "parked": found.parked,
        "servers": found.seen,
    }
    if found.tombstone is not None:
        shown["deleted"] = asdict(found.tombstone)
    return shown


def _row(name: str, found: Described) -> tuple[Any, ...]:
    state = "active" if found.tombstone is None else "deleted"
    return (
        name,
        state,
        found.log_id,
        found.reservations,
        found.open,
        found.parked,
        found.head,
    )


def _what_was(gone: Tombstone) -> str:
    parts = [(gone.reservations, "reservation"), (gone.objects, "object")]
    parts += [(gone.events, "event"), (gone.alarms, "alarm")]
    return ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in parts
        if count or word != "object"
    )


def _text(value: Any) -> str:
    if isinstance(value, dict) and "at_ms" in value:
        return f"{instant(value['at_ms'])}: {_what_was(Tombstone(**value))}"
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none seen in the last minute"
    return str(value)
