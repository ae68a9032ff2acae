"""Commands on reservations: hold, show, history, list, events."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from reservation_expiry.api.cli.common import (
    COUNT,
    EXIT_NOT_FOUND,
    Command,
    Instant,
    application,
    database_option,
    fail,
    instant,
    json_option,
    print_json,
    queries,
    shown_name,
)
from reservation_expiry.api.cli.output import print_table
from reservation_expiry.api.rendering import render, render_event
from reservation_expiry.domain.ids import aggregate_id, id_of, named
from reservation_expiry.domain.reservation import Reservation, apply
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries, RecordedEvent

PAGE = 1_000
FOLLOW_SECONDS = 0.25

HEADINGS = ("RESERVATION", "STATUS", "CREATED", "EXPIRES", "EXPIRED", "COUNT", "ALARM")
EVENT_HEADINGS = ("POSITION", "VERSION", "EVENT", "RECORDED", "DATA")


@click.command(cls=Command)
@click.argument("name")
@click.option("--ttl", type=int, required=True, help="Seconds to hold it, from 5 to 3600.")
@database_option
@json_option
def hold(name: str, ttl: int, database: Address, as_json: bool) -> None:
    """Hold NAME from now, whatever state it is in."""
    with application(database) as running:
        _print_states([running.hold(name, ttl)], as_json)


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--at", "at_ms", type=Instant(), help="The state at this time, replayed from the log."
)
@click.option("--version", type=COUNT, help="The state after this many events.")
@database_option
@json_option
def show(
    name: str, at_ms: int | None, version: int | None, database: Address, as_json: bool
) -> None:
    """Show the state of NAME, now or as it was."""
    if at_ms is not None and version is not None:
        raise click.UsageError("give --at or --version, not both")
    reservation_id = aggregate_id(name)
    with queries(database) as asked:
        if at_ms is None and version is None:
            state = asked.reservation(name)
        else:
            state = _replayed(asked.history(reservation_id), at_ms, version)
    if state is None:
        fail(f"{name} was not held{'' if at_ms is None else ' at that time'}", EXIT_NOT_FOUND)
    _print_states([state], as_json)


@click.command(cls=Command)
@click.argument("name")
@database_option
@json_option
def history(name: str, database: Address, as_json: bool) -> None:
    """List what happened to NAME, or to the object CLASS/NAME, event by event."""
    with queries(database, log_only=True) as asked:
        happened = False
        for rows in asked.pages_of(id_of(name)):
            _print_events(rows, as_json)
            happened = True
    if not happened:
        fail(f"nothing ever happened to {name}", EXIT_NOT_FOUND)


@click.command(cls=Command, name="list")
@click.option("--status", type=click.Choice(["held", "expired"]))
@click.option("--prefix", default="", help="Only names with this prefix.")
@click.option("--due-before", type=Instant(), help="Only open holds that end before this time.")
@click.option("--limit", type=COUNT, default=100, show_default=True)
@database_option
@json_option
def list_reservations(
    status: str | None,
    prefix: str,
    due_before: int | None,
    limit: int,
    database: Address,
    as_json: bool,
) -> None:
    """List reservations by name."""
    with queries(database) as asked:
        states = asked.reservations(
            status=status, prefix=prefix, due_before_ms=due_before, limit=limit
        )
    _print_states(states, as_json)


@click.command(cls=Command)
@click.option(
    "--after", type=click.IntRange(0, 2**53 - 1), default=0, help="Only events after this position."
)
@click.option("--limit", type=COUNT, help="At most this many events.")
@click.option(
    "--follow", is_flag=True, help="Wait for new events, and print each once it is committed."
)
@database_option
@json_option
def events(after: int, limit: int | None, follow: bool, database: Address, as_json: bool) -> None:
    """Print the log, in order of position."""
    with queries(database, log_only=True) as asked:
        for rows in _pages(asked, after, limit, follow):
            for event in _shown(rows):
                print_json(event) if as_json else click.echo(_line(event))


def _pages(
    asked: Queries, after: int, limit: int | None, follow: bool
) -> Iterator[list[RecordedEvent]]:
    left = limit
    while left is None or left > 0:
        rows = asked.events_after(after, PAGE if left is None else min(PAGE, left))
        if rows:
            yield rows
            after = rows[-1].position
            left = None if left is None else left - len(rows)
        elif follow:
            time.sleep(FOLLOW_SECONDS)
        else:
            return


def _replayed(
    rows: Iterable[RecordedEvent], at_ms: int | None, version: int | None
) -> Reservation | None:
    mapper, state, versions = EventMapper(), None, 0
    for row in rows:
        if at_ms is not None and row.recorded_at_ms > at_ms:
            continue  # the clock may have been put back since
        versions = row.originator_version
        state = apply(state, mapper.decode(row.originator_id, versions, row.topic, row.state))
        if versions == version:
            return state
    if version is not None:
        fail(f"the reservation has {versions} versions", EXIT_NOT_FOUND)
    return state


def _print_states(states: list[Reservation], as_json: bool) -> None:
    if as_json:
        for state in states:
            print_json(render(state.name, state))
        return
    rows = [
        (
            state.name,
            state.status,
            instant(state.created_at_ms),
            instant(state.expires_at_ms),
            instant(state.expired_at_ms),
            state.expiration_count,
            instant(state.alarm_at_ms),
        )
        for state in states
    ]
    print_table(HEADINGS, rows)


def _shown(rows: list[RecordedEvent]) -> list[dict[str, Any]]:
    mapper = EventMapper()
    return [named(row.originator_id) | render_event(row, mapper) for row in rows]


def _print_events(rows: list[RecordedEvent], as_json: bool) -> None:
    events = _shown(rows)
    if as_json:
        for event in events:
            print_json(event)
        return
    print_table(
        EVENT_HEADINGS,
        [
            (e["position"], e["version"], e["event"], instant(e["recordedAt"]), _facts(e))
            for e in events
        ],
    )


def _line(event: dict[str, Any]) -> str:
    return (
        f"{event['position']:>8}  {instant(event['recordedAt'])}  {shown_name(event)}"
        f"  {event['version']} {event['event']}  {_facts(event)}"
    )


def _facts(event: dict[str, Any]) -> str:
    if event["data"] is None:
        problem: str = event["problem"]
        return problem
    return ", ".join(f"{key} {_fact(key, value)}" for key, value in event["data"].items())


def _fact(key: str, value: object) -> str | None:
    if type(value) is int and key.endswith(("At", "Time")):
        return instant(value)
    return msgspec.json.encode(value).decode()
