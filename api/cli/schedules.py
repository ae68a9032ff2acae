"""Commands on schedules: put, list, show, cancel, re-drive events."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from reservation_expiry.api.cli.common import (
    EXIT_NOT_FOUND,
    Command,
    Instant,
    application,
    database_option,
    fail,
    instant,
    json_option,
    print_json,
)
from reservation_expiry.api.cli.output import print_table
from reservation_expiry.api.cli.remote import service, url_option
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address

if TYPE_CHECKING:  # most commands ask a database
    from reservation_expiry.api.client import ServiceClient

HEADINGS = ("EVENT", "NEXT RUN", "AGAIN", "RUNS", "MISSED", "GIVEN UP", "TRIES", "STATE", "PAYLOAD")


@click.group()
def schedule() -> None:
    """Put, show and cancel scheduled events, beside a server or without one."""


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("id")
@click.option("--at", "run_at", type=Instant(), help="When it runs first.")
@click.option(
    "--every", "repeat_ms", type=int, help="The period in milliseconds, of an event that recurs."
)
@click.option("--cron", help="Instead of --at: five fields, as in '0 9 * * 1-5'.")
@click.option("--zone", default="UTC", show_default=True, help="The time zone of --cron.")
@click.option("--payload", help="JSON that the event carries.")
@database_option
@url_option
@json_option
def put(
    name: str,
    id: str,
    run_at: int | None,
    repeat_ms: int | None,
    cron: str | None,
    zone: str,
    payload: str | None,
    database: Address,
    url: str | None,
    as_json: bool,
) -> None:
    """Add the event ID to the schedule NAME, or replace it; the same again changes nothing."""
    try:
        carried = None if payload is None else json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--payload is not JSON: {error}") from error
    event = _ask(database, url, name, "scheduleEvent", id, run_at, repeat_ms, carried, cron, zone)
    _print([event], as_json)


@schedule.command(name="list", cls=Command)
@click.argument("name")
@click.option("--parked", is_flag=True, help="Only parked events.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--after", default="", help="Only events after this id.")
@database_option
@url_option
@json_option
def list_events(
    name: str,
    parked: bool,
    limit: int,
    after: str,
    database: Address,
    url: str | None,
    as_json: bool,
) -> None:
    """List the events of the schedule NAME by id."""
    events = _ask(database, url, name, "listParked" if parked else "listEvents", limit, after)
    _print(events, as_json)


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("id")
@database_option
@url_option
@json_option
def show(name: str, id: str, database: Address, url: str | None, as_json: bool) -> None:
    """Show the event ID of the schedule NAME."""
    event = _ask(database, url, name, "getEvent", id)
    if event is None:
        fail(f"{name} has no event {id}", EXIT_NOT_FOUND)
    _print([event], as_json)


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("id")
@database_option
@url_option
def cancel(name: str, id: str, database: Address, url: str | None) -> None:
    """Take the event ID out of the schedule NAME."""
    if not _ask(database, url, name, "cancelEvent", id):
        fail(f"{name} has no event {id}", EXIT_NOT_FOUND)
    click.echo(f"{id} is cancelled")


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("id")
@database_option
@url_option
def redrive(name: str, id: str, database: Address, url: str | None) -> None:
    """Give the parked event ID of the schedule NAME a fresh start."""
    if not _ask(database, url, name, "redriveEvent", id):
        fail(f"{name} has no parked event {id}", EXIT_NOT_FOUND)
    click.echo(f"{id} is re-driven")


def _ask(database: Address, url: str | None, name: str, method: str, *args: Any) -> Any:
    """What a method of the schedule answers, run by a service, or in this process."""
    if url is not None:
        with service(url) as there:
            return _ask_service(there, name, method, *args)

    async def ask(running: ReservationApplication) -> Any:
        from reservation_expiry.api.schedules import Schedules, schedule_host

        host = schedule_host(running)
        try:
            return await Schedules(host.call).call(name, method, *args)
        finally:
            await host.stop()

    with application(database) as running:
        return asyncio.run(ask(running))


def _ask_service(there: "ServiceClient", name: str, method: str, *args: Any) -> Any:
    """The same by the service's routes, which have the methods' own words."""
    if method in ("listEvents", "listParked"):
        limit, after = args
        parked = "true" if method == "listParked" else "false"
        query = {"limit": limit, "after": after, "parked": parked}
        return there.ask("GET", "schedules", name, query=query, member="events")
    event = ("schedules", name, "events", args[0])
    if method == "scheduleEvent":
        words = ("runAt", "repeatMs", "payload", "cron", "zone")
        body = dict(zip(words, args[1:], strict=True))
        return there.ask("PUT", *event, body=body)
    if method == "redriveEvent":
        return _if_there(there, "POST", *event, "redrive")
    return _if_there(there, {"getEvent": "GET", "cancelEvent": "DELETE"}[method], *event)


def _if_there(there: "ServiceClient", method: str, *segments: str) -> Any:
    """What is answered; None if there is no such event."""
    from reservation_expiry.api.client import ServiceRefused

    try:
        return there.ask(method, *segments) or True
    except ServiceRefused as error:
        if error.status == 404:
            return None
        raise


def _print(events: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for event in events:
            print_json(event)
        return
    rows = [
        (
            event["id"],
            instant(event["runAt"]),
            _again(event),
            event["runs"],
            event["missed"],
            event["gaveUp"],
            event["attempts"],
            _state(event),
            "" if event["payload"] is None else json.dumps(event["payload"]),
        )
        for event in events
    ]
    print_table(HEADINGS, rows)


def _state(event: dict[str, Any]) -> str:
    if event["nextProblem"] is not None:
        return f"parked: {event['nextProblem']}"
    return "parked" if event["parked"] else "waiting"


def _again(event: dict[str, Any]) -> str:
    if event["cron"] is not None:
        return f"{event['cron']} {event['zone']}"
    return "" if event["repeatMs"] is None else f"every {event['repeatMs']} ms"
