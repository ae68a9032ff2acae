"""Commands on alarms: list them and how they went, give parked ones a fresh start."""

from collections.abc import Mapping
from typing import Any

import click

from reservation_expiry.api.cli.common import (
    COUNT,
    EXIT_NOT_FOUND,
    Command,
    application,
    database_option,
    fail,
    instant,
    json_option,
    print_json,
    queries_and_clock,
    shown_name,
)
from reservation_expiry.api.cli.output import print_table
from reservation_expiry.api.cli.remote import service, url_option
from reservation_expiry.api.rendering import render_alarm, render_attempt
from reservation_expiry.domain.ids import id_of
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.alarm_pages import (
    OUTCOMES,
    RESERVATION,
    AlarmState,
    AttemptsWanted,
)

ATTEMPT_HEADINGS = ("OF", "ENDED", "OUTCOME", "LATE", "RETRY", "ERROR")
HEADINGS = ("NAME", "SCHEDULED", "LOOKS AGAIN", "ATTEMPTS", "STATE")


@click.group()
def alarms() -> None:
    """List alarms and how they went; re-drive parked ones."""


@alarms.command(name="list", cls=Command)
@click.option("--due", is_flag=True, help="Only alarms that are due.")
@click.option("--parked", is_flag=True, help="Only parked alarms.")
@click.option("--limit", type=COUNT, default=100, show_default=True)
@database_option
@url_option
@json_option
def list_alarms(
    due: bool, parked: bool, limit: int, database: Address, url: str | None, as_json: bool
) -> None:
    """List alarms, the earliest first, parked ones first of all."""
    if due and parked:
        raise click.UsageError("give --due or --parked, not both")
    state: AlarmState | None = "due" if due else "parked" if parked else None
    if url is not None:
        with service(url) as there:
            shown = there.ask(
                "GET", "alarms", query={"state": state, "limit": limit}, member="alarms"
            )
    else:
        with queries_and_clock(database) as (asked, clock):
            now_ms = clock.now_ms()
            rows = asked.alarms(state, now_ms=now_ms, limit=limit)
        shown = [render_alarm(row, now_ms) for row in rows]
    if as_json:
        for alarm in shown:
            print_json(alarm)
        return
    print_table(
        HEADINGS,
        [
            (
                shown_name(alarm),
                instant(alarm["scheduledTime"]),
                instant(alarm["nextRunTime"]),
                alarm["attempts"],
                alarm["state"],
            )
            for alarm in shown
        ],
    )


@alarms.command(cls=Command)
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only attempts that ended so.")
@click.option("--name", help="Only those of a reservation, or of an object: CLASS/NAME.")
@click.option("--limit", type=COUNT, default=100, show_default=True)
@database_option
@url_option
@json_option
def attempts(
    outcome: str | None,
    name: str | None,
    limit: int,
    database: Address,
    url: str | None,
    as_json: bool,
) -> None:
    """List how attempts at alarms ended, the newest first, as far as they are kept."""
    if url is not None:
        query = {"outcome": outcome, "name": name, "limit": limit}
        with service(url) as there:
            shown = there.ask("GET", "alarms", "attempts", query=query, member="attempts")
    else:
        wanted = AttemptsWanted(outcome=outcome, subject=None if name is None else id_of(name))
        with queries_and_clock(database) as (asked, _):
            shown = [render_attempt(row) for row in asked.attempts(wanted, limit)]
    if as_json:
        for attempt in shown:
            print_json(attempt)
        return
    print_table(
        ATTEMPT_HEADINGS,
        [
            (
                _subject(attempt),
                instant(attempt["at"]),
                attempt["outcome"],
                f"{attempt['latenessMs']} ms",
                attempt["retryCount"],
                attempt["error"] or "",
            )
            for attempt in shown
        ],
    )


def _subject(attempt: Mapping[str, Any]) -> str:
    """As the commands call it."""
    name, event_id = attempt["name"], attempt["eventId"]
    if attempt["entrypoint"] != RESERVATION:
        name = f"{attempt['entrypoint']}/{name}"
    return str(name) if event_id is None else f"{name} {event_id}"


@alarms.command(cls=Command)
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every parked alarm.")
@database_option
@url_option
def redrive(name: str | None, everything: bool, database: Address, url: str | None) -> None:
    """Give the parked alarm of NAME (an object: CLASS/NAME), or all of them, a fresh start."""
    if (name is None) == (not everything):
        raise click.UsageError("give NAME or --all")
    if url is not None:
        with service(url) as there:
            wanted = {"all": True} if name is None else {"name": name}
            redriven = there.ask("POST", "alarms", "redrive", body=wanted, member="redriven")
            click.echo(f"alarms re-driven: {redriven}" if name is None else f"{name} is re-driven")
            return
    with application(database) as running:
        if name is not None:
            if not running.redrive(name):
                fail(f"{name} has no alarm to run", EXIT_NOT_FOUND)
            click.echo(f"{name} is re-driven")
            return
        click.echo(f"alarms re-driven: {running.redrive_all()}")
