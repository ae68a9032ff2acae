"""Commands on schedules: put, list, show, cancel, re-drive events."""

import asyncio
import json
from typing import Any

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
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address

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
    as_json: bool,
) -> None:
    """Add the event ID to the schedule NAME, or replace it; the same again changes nothing."""
    try:
        carried = None if payload is None else json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--payload is not JSON: {error}") from error
    event = _ask(database, name, "scheduleEvent", id, run_at, repeat_ms, carried, cron, zone)
    _print([event], as_json)


@schedule.command(name="list", cls=Command)
@click.argument("name")
@click.option("--parked", is_flag=True, help="Only parked events.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--after", default="", help="Only events after this id.")
@database_option
@json_option
def list_events(
    name: str, parked: bool, limit: int, after: str, database: Address, as_json: bool
) -> None:
    """List the events of the schedule NAME by id."""
    events = _ask(database, name, "listParked" if parked else "listEvents", limit, after)
    _print(events, as_json)


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("id")
@database_option
@json_option
def show(name: str, id: str, database: Address, as_json: bool) -> None:
    """Show the event ID of the schedule NAME."""
    event = _ask(database, name, "getEvent", id)
    if event is None:
        fail(f"{name} has no event {id}", EXIT_NOT_FOUND)
    _print([event], as_json)


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("id")
@database_option
def cancel(name: str, id: str, database: Address) -> None:
    """Take the event ID out of the schedule NAME."""
    if not _ask(database, name, "cancelEvent", id):
        fail(f"{name} has no event {id}", EXIT_NOT_FOUND)
    click.echo(f"{id} is cancelled")


@schedule.command(cls=Command)
@click.argument("name")
@click.argument("id")
@database_option
def redrive(name: str, id: str, database: Address) -> None:
    """Give the parked event ID of the schedule NAME a fresh start."""
    if not _ask(database, name, "redriveEvent", id):
        fail(f"{name} has no parked event {id}", EXIT_NOT_FOUND)
    click.echo(f"{id} is re-driven")


def _ask(database: Address, name: str, method: str, *args: Any) -> Any:
    """What a method of the schedule answers, run in this process."""

    async def ask(running: ReservationApplication) -> Any:
        from reservation_expiry.api.schedules import Schedules, schedule_host

        host = schedule_host(running)
        try:
            return await Schedules(host.call).call(name, method, *args)
        finally:
            await host.stop()

    with application(database) as running:
        return asyncio.run(ask(running))


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
