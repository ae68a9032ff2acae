"""Commands on holds with terms, and on items: what HTTP offers, on a service or a database.

With `--database` the same routes are asked in this process, so that what is allowed, and
what is answered, is told in one place.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reservation_expiry.api.cli.common import (
    EXIT_NOT_FOUND,
    Command,
    Instant,
    SourceFile,
    application,
    database_option,
    fail,
    instant,
    json_option,
    print_json,
)
from reservation_expiry.api.cli.output import print_table
from reservation_expiry.api.cli.remote import service, url_option
from reservation_expiry.api.client import ServiceRefused
from reservation_expiry.domain.ids import aggregate_id, is_item_name
from reservation_expiry.infrastructure.stores.address import Address

HEADINGS = ("HOLD", "STATUS", "EXPIRES", "UNTIL", "ENDED", "LINES", "OWNER", "VERSION")
ITEM_HEADINGS = ("ITEM", "CAPACITY", "HELD", "CONFIRMED", "FREE")

token_option = click.option(
    "--token-file",
    type=SourceFile(),
    help="A file whose first line is the Hold-Token. (An argument would be seen by all.)",
)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    return database_option(url_option(json_option(command)))


@click.group()
def holds() -> None:
    """Take, extend, confirm and give back holds with terms."""


@click.group()
def items() -> None:
    """Say how many there are of what is held, and see how many are free."""


@holds.command(cls=Command)
@click.argument("name")
@click.option("--ttl", type=int, required=True, help="Seconds to hold it.")
@click.option(
    "--line", "lines", multiple=True, metavar="ITEM[=UNITS]", help="Of what; may be repeated."
)
@click.option("--owner", help="Whose it is, to find it by.")
@token_option
@asking
def put(
    name: str,
    ttl: int,
    lines: tuple[str, ...],
    owner: str | None,
    token_file: Path | None,
    **where: Any,
) -> None:
    """Take the hold NAME, all its lines or none; held in time, it gets these."""
    body = {"ttlSeconds": ttl, "lines": [_line(text) for text in lines], "owner": owner}
    if owner is None:
        del body["owner"]
    _print_holds([_ask(where, "PUT", "holds", name, body=body, token=token_file)], where)


@holds.command(cls=Command)
@click.argument("name")
@asking
def show(name: str, **where: Any) -> None:
    """Show the hold NAME as it is."""
    _print_holds([_ask(where, "GET", "holds", name)], where)


@holds.command("list", cls=Command)
@click.option("--status", help="held, expired, confirmed, released or cancelled.")
@click.option("--owner", help="Those of an owner.")
@click.option("--item", help="Those that have a line of an item.")
@click.option("--prefix", help="Those whose names begin so.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True)
@asking
def list_holds(
    status: str | None,
    owner: str | None,
    item: str | None,
    prefix: str | None,
    limit: int,
    **where: Any,
) -> None:
    """List holds with terms, by name."""
    query = {"status": status, "owner": owner, "item": item, "prefix": prefix, "limit": limit}
    _print_holds(_ask(where, "GET", "holds", query=query)["holds"], where)


@holds.command(cls=Command)
@click.argument("name")
@click.option("--ttl", type=int, help="Seconds from now.")
@click.option("--at", "at_ms", type=Instant(), help="Or until this time.")
@click.option("--shorten", is_flag=True, help="Let it be an earlier deadline.")
@token_option
@asking
def extend(
    name: str,
    ttl: int | None,
    at_ms: int | None,
    shorten: bool,
    token_file: Path | None,
    **where: Any,
) -> None:
    """Give the hold NAME another deadline."""
    if (ttl is None) == (at_ms is None):
        raise click.UsageError("give --ttl or --at")
    body = {"ttlSeconds": ttl} if at_ms is None else {"expiresAt": at_ms}
    body |= {"shorten": True} if shorten else {}
    _act(name, "extend", body, token_file, where)


@holds.command(cls=Command)
@click.argument("name")
@token_option
@asking
def confirm(name: str, token_file: Path | None, **where: Any) -> None:
    """Confirm the hold NAME: it expires no more."""
    _act(name, "confirm", {}, token_file, where)


@holds.command(cls=Command)
@click.argument("name")
@token_option
@asking
def release(name: str, token_file: Path | None, **where: Any) -> None:
    """Give the hold NAME back before its time."""
    _act(name, "release", {}, token_file, where)


@holds.command(cls=Command)
@click.argument("name")
@token_option
@asking
def cancel(name: str, token_file: Path | None, **where: Any) -> None:
    """Give back what was confirmed."""
    _act(name, "cancel", {}, token_file, where)


@items.command("set", cls=Command)
@click.argument("name")
@click.argument("capacity", type=int)
@asking
def set_item(name: str, capacity: int, **where: Any) -> None:
    """Say that there are CAPACITY units of the item NAME."""
    _print_items([_ask(where, "PUT", "items", name, body={"capacity": capacity})], where)


@items.command("show", cls=Command)
@click.argument("name")
@asking
def show_item(name: str, **where: Any) -> None:
    """Show how many units of the item NAME are free."""
    _print_items([_ask(where, "GET", "items", name)], where)


@items.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True)
@click.option("--after", default="", metavar="NAME", help="Those behind this name.")
@asking
def list_items(limit: int, after: str, **where: Any) -> None:
    """List the items of which any were ever set or taken."""
    query = {"limit": limit, "after": after or None}
    _print_items(_ask(where, "GET", "items", query=query)["items"], where)


def _act(
    name: str, word: str, body: dict[str, Any], token: Path | None, where: dict[str, Any]
) -> None:
    _print_holds([_ask(where, "POST", "holds", name, word, body=body, token=token)], where)


def _ask(
    where: dict[str, Any],
    method: str,
    *segments: str,
    query: dict[str, Any] | None = None,
    body: dict[str, Any] | None = None,
    token: Path | None = None,
) -> Any:
    headers = {} if token is None else {"Hold-Token": _first_line(token)}
    family, *names = segments[:2]
    for name in names:  # it becomes a part of a path
        check = aggregate_id if family == "holds" else check_item_name
        check(name)
    try:
        if where["url"] is not None:
            with service(where["url"]) as asked:
                return asked.ask(method, *segments, query=query, body=body, headers=headers)
        return _ask_here(where["database"], method, segments, query, body, headers)
    except ServiceRefused as refused:
        fail(str(refused), *([EXIT_NOT_FOUND] if refused.status == 404 else []))


def _ask_here(
    database: Address,
    method: str,
    segments: tuple[str, ...],
    query: dict[str, Any] | None,
    body: dict[str, Any] | None,
    headers: dict[str, str],
) -> Any:
    from reservation_expiry.api.http import create_app

    wanted = {key: value for key, value in (query or {}).items() if value is not None}
    with application(database) as running:
        answer = (
            create_app(running)
            .test_client()
            .open(
                "/" + "/".join(segments),
                method=method,
                query_string=wanted,
                json=body,
                headers=headers,
            )
        )
        found: Any = answer.get_json(silent=True)
        if answer.status_code >= 300:
            sentence = found.get("detail") or found.get("error")
            raise ServiceRefused(answer.status_code, str(sentence))
        return found


def check_item_name(name: str) -> None:
    if not is_item_name(name):
        raise click.UsageError(f"{name!r} is no item's name: use 1-100 of A-Z a-z 0-9 . _ : -")


def _line(text: str) -> dict[str, Any]:
    item, equals, units = text.rpartition("=")
    if not equals:
        return {"item": text}
    if not units.isdecimal():
        raise click.UsageError(f"{text!r} is not ITEM or ITEM=UNITS")
    return {"item": item, "units": int(units)}


def _first_line(file: Path) -> str:
    return file.read_text(errors="replace").partition("\n")[0].strip()


def _print_holds(found: list[dict[str, Any]], where: dict[str, Any]) -> None:
    if where["as_json"]:
        for hold in found:
            print_json(hold)
        return
    rows = [
        (
            hold["hold"],
            hold["status"],
            instant(hold["expiresAt"]),
            instant(hold["until"]),
            instant(hold["endedAt"]),
            ", ".join(f"{line['item']}={line['units']}" for line in hold["lines"]),
            hold["owner"],
            hold["version"],
        )
        for hold in found
    ]
    print_table(HEADINGS, rows)


def _print_items(found: list[dict[str, Any]], where: dict[str, Any]) -> None:
    if where["as_json"]:
        for item in found:
            print_json(item)
        return
    rows = [tuple(i[k] for k in ("item", "capacity", "held", "confirmed", "free")) for i in found]
    print_table(ITEM_HEADINGS, rows)
