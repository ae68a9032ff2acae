"""Commands on alarms: list them, give parked ones a fresh start."""

import math
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
    shown_name,
)
from reservation_expiry.api.cli.output import print_table
from reservation_expiry.domain.ids import name_of, named
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.instants import ms_of_seconds
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.opening import opened
from reservation_expiry.infrastructure.stores.row_types import AlarmRow
from reservation_expiry.infrastructure.stores.sql.queries import Queries

HEADINGS = ("NAME", "SCHEDULED", "LOOKS AGAIN", "ATTEMPTS", "STATE")
REDRIVE_PAGE = 500


@click.group()
def alarms() -> None:
    """List alarms and re-drive parked ones."""


@alarms.command(name="list", cls=Command)
@click.option("--due", is_flag=True, help="Only alarms that are due.")
@click.option("--parked", is_flag=True, help="Only parked alarms.")
@click.option("--limit", type=COUNT, default=100, show_default=True)
@database_option
@json_option
def list_alarms(due: bool, parked: bool, limit: int, database: Address, as_json: bool) -> None:
    """List alarms, the earliest first, parked ones first of all."""
    if due and parked:
        raise click.UsageError("give --due or --parked, not both")
    with opened(database) as store:
        now_ms = store.clock.now_ms()
        rows = Queries(store).alarms(due_at_ms=now_ms if due else None, parked=parked, limit=limit)
    shown = [_describe(row, now_ms) for row in rows]
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
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every parked alarm.")
@database_option
def redrive(name: str | None, everything: bool, database: Address) -> None:
    """Give the parked alarm of NAME (an object: CLASS/NAME), or all of them, a fresh start."""
    if (name is None) == (not everything):
        raise click.UsageError("give NAME or --all")
    with application(database) as running:
        if name is not None:
            if not running.redrive(name):
                fail(f"{name} has no alarm to run", EXIT_NOT_FOUND)
            click.echo(f"{name} is re-driven")
            return
        redriven, after = 0, ""
        while parked := running.queries.parked(REDRIVE_PAGE, after):
            redriven += sum(running.redrive(name_of(i)) for i in parked)
            after = parked[-1]
    click.echo(f"alarms re-driven: {redriven}")


def _describe(row: AlarmRow, now_ms: int) -> dict[str, Any]:
    alarm_id, next_run_time, job_state = row
    next_ms = None
    if next_run_time is not None and math.isfinite(next_run_time):
        next_ms = ms_of_seconds(next_run_time)
    try:
        state = alarm_row.decode(job_state)
    except alarm_row.UnreadableAlarm:
        state = None
    if next_ms is None:
        word = "parked" if next_run_time is None else "damaged"
    elif state is not None and state.token is not None:
        word = "claimed"
    else:
        word = "due" if next_ms <= now_ms else "waiting"
    return {
        **named(alarm_id),
        "scheduledTime": None if state is None else state.scheduled_time,
        "nextRunTime": next_ms,
        "attempts": None if state is None else state.attempts,
        "state": word if state is not None else f"{word}, unreadable",
    }
