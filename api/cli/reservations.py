"""Commands on reservations and the log: hold, show, history, list, events, tail."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

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
from reservation_expiry.api.cli.remote import service, url_option
from reservation_expiry.api.rendering import render, render_event, reservation_event
from reservation_expiry.domain.events import ReservationEvent
from reservation_expiry.domain.ids import aggregate_id, id_of, is_name, named
from reservation_expiry.domain.reservation import Reservation, Status, apply
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries, RecordedEvent

if TYPE_CHECKING:  # most commands ask a database
    from reservation_expiry.api.client import ServiceClient

PAGE = 1_000
FOLLOW_SECONDS = 0.25

HEADINGS = ("RESERVATION", "STATUS", "CREATED", "EXPIRES", "EXPIRED", "COUNT", "ALARM")
EVENT_HEADINGS = ("POSITION", "VERSION", "EVENT", "RECORDED", "DATA")


@click.command(cls=Command)
@click.argument("name")
@click.option("--ttl", type=int, required=True, help="Seconds to hold it, from 5 to 3600.")
@database_option
@url_option
@json_option
def hold(name: str, ttl: int, database: Address, url: str | None, as_json: bool) -> None:
    """Hold NAME from now, whatever state it is in."""
    aggregate_id(name)
    if url is not None:
        with service(url) as asked:
            held = asked.ask("POST", "reservations", name, body={"ttlSeconds": ttl})
        return _print_states([held], as_json)
    with application(database) as running:
        _print_states([render(name, running.hold(name, ttl))], as_json)


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--at", "at_ms", type=Instant(), help="The state at this time, replayed from the log."
)
@click.option("--version", type=COUNT, help="The state after this many events.")
@database_option
@url_option
@json_option
def show(
    name: str,
    at_ms: int | None,
    version: int | None,
    database: Address,
    url: str | None,
    as_json: bool,
) -> None:
    """Show the state of NAME, now or as it was."""
    if at_ms is not None and version is not None:
        raise click.UsageError("give --at or --version, not both")
    reservation_id, is_now = aggregate_id(name), at_ms is None and version is None
    if url is not None and is_now:
        with service(url) as there:
            shown = there.ask("GET", "reservations", name)
    elif url is not None:
        told = (event for page in _history_at(url, name) for event in page)
        shown = render(name, _replayed(map(partial(_told, name), told), at_ms, version))
    else:
        with queries(database) as asked:
            if is_now:
                state = asked.reservation(name)
            else:
                rows = asked.history(reservation_id)
                state = _replayed(map(partial(_logged, EventMapper()), rows), at_ms, version)
        shown = render(name, state)
    if shown["status"] == "missing":
        fail(f"{name} was not held{'' if at_ms is None else ' at that time'}", EXIT_NOT_FOUND)
    _print_states([shown], as_json)


@click.command(cls=Command)
@click.argument("name")
@database_option
@url_option
@json_option
def history(name: str, database: Address, url: str | None, as_json: bool) -> None:
    """List what happened to NAME, or to the object CLASS/NAME, event by event."""
    happened = False
    for shown in _history_at(url, name) if url is not None else _history(database, name):
        _print_events(shown, as_json)
        happened = True
    if not happened:
        fail(f"nothing ever happened to {name}", EXIT_NOT_FOUND)


@click.command(cls=Command, name="list")
@click.option("--status", type=click.Choice(get_args(Status)))
@click.option("--prefix", default="", help="Only names with this prefix.")
@click.option("--due-before", type=Instant(), help="Only open holds that end before this time.")
@click.option("--limit", type=COUNT, default=100, show_default=True)
@database_option
@url_option
@json_option
def list_reservations(
    status: str | None,
    prefix: str,
    due_before: int | None,
    limit: int,
    database: Address,
    url: str | None,
    as_json: bool,
) -> None:
    """List reservations by name."""
    if url is not None:
        wanted = {"status": status, "prefix": prefix or None, "dueBefore": due_before}
        with service(url) as there:
            return _print_states(_listed(there, wanted, limit), as_json)
    with queries(database) as asked:
        states = asked.reservations(
            status=status, prefix=prefix, due_before_ms=due_before, limit=limit
        )
    _print_states([render(state.name, state) for state in states], as_json)


@click.command(cls=Command)
@click.option(
    "--after", type=click.IntRange(0, 2**53 - 1), default=0, help="Only events after this position."
)
@click.option("--limit", type=COUNT, help="At most this many events.")
@click.option(
    "--follow", is_flag=True, help="Wait for new events, and print each once it is committed."
)
@database_option
@url_option
@json_option
def events(
    after: int,
    limit: int | None,
    follow: bool,
    database: Address,
    url: str | None,
    as_json: bool,
) -> None:
    """Print the log, in order of position."""
    if url is not None:
        with service(url) as there:
            return _print_log(_pages(partial(_page_at, there), after, limit, follow), as_json)
    with queries(database, log_only=True) as asked:
        _print_log(_pages(partial(_page, asked), after, limit, follow), as_json)


@click.command(cls=Command)
@click.option("--last", type=click.IntRange(0, PAGE), default=10, show_default=True)
@database_option
@url_option
@json_option
def tail(last: int, database: Address, url: str | None, as_json: bool) -> None:
    """Print the last events of the log, and each new one once it is committed."""
    if url is not None:
        with service(url) as there:
            page = there.ask("GET", "events", query={"last": last, "limit": PAGE})
            _print_log([page["events"]], as_json)
            follow = _pages(partial(_page_at, there), page["next"], None, follow=True)
            return _print_log(follow, as_json)
    with queries(database, log_only=True) as asked:
        after = max(0, asked.head().position - last)
        _print_log(_pages(partial(_page, asked), after, None, follow=True), as_json)


Shown = list[dict[str, Any]]
Page = Callable[[int, int], Shown]
"""The first events behind a position, at most so many, as they are shown."""


def _pages(page: Page, after: int, limit: int | None, follow: bool) -> Iterator[Shown]:
    left = limit
    while left is None or left > 0:
        shown = page(after, PAGE if left is None else min(PAGE, left))
        if shown:
            yield shown
            after = shown[-1]["position"]
            left = None if left is None else left - len(shown)
        elif follow:
            time.sleep(FOLLOW_SECONDS)
        else:
            return


def _page(asked: Queries, after: int, limit: int) -> Shown:
    return _shown(asked.events_after(after, limit))


def _page_at(there: "ServiceClient", after: int, limit: int) -> Shown:
    found: Shown = there.ask(
        "GET", "events", query={"after": after, "limit": limit}, member="events"
    )
    return found


def _print_log(pages: Iterable[Shown], as_json: bool) -> None:
    for shown in pages:
        for event in shown:
            print_json(event) if as_json else click.echo(_line(event))


def _history(database: Address, name: str) -> Iterator[Shown]:
    with queries(database, log_only=True) as asked:
        yield from map(_shown, asked.pages_of(id_of(name)))


def _history_at(url: str, name: str) -> Iterator[Shown]:
    if not is_name(name):
        raise click.UsageError(
            "a service tells the history of reservations; those of objects are among its events"
        )
    with service(url) as there:
        after = 0
        while True:
            wanted = {"after": after, "limit": PAGE}
            found = there.ask("GET", "reservations", name, "events", query=wanted, member="events")
            if not found:
                return
            yield [named(aggregate_id(name)) | event for event in found]
            after = found[-1]["version"]


def _listed(there: "ServiceClient", wanted: dict[str, Any], limit: int) -> Shown:
    found: Shown = []
    cursor = None
    while len(found) < limit:
        query = wanted | {"limit": min(PAGE, limit - len(found)), "cursor": cursor}
        page = there.ask("GET", "reservations", query=query)
        found += page["reservations"]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    return found


Replayable = tuple[int, int, Callable[[], ReservationEvent]]
"""When it was recorded, its version, and the event itself, which may not be readable."""


def _logged(mapper: EventMapper, row: RecordedEvent) -> Replayable:
    version = row.originator_version
    read = partial(mapper.decode, row.originator_id, version, row.topic, row.state)
    return row.recorded_at_ms, version, read


def _told(name: str, shown: dict[str, Any]) -> Replayable:
    return shown["recordedAt"], shown["version"], partial(reservation_event, name, shown)


def _replayed(
    events: Iterable[Replayable], at_ms: int | None, version: int | None
) -> Reservation | None:
    state, versions = None, 0
    for recorded_at_ms, versions_then, read in events:
        if at_ms is not None and recorded_at_ms > at_ms:
            continue  # the clock may have been put back since
        versions = versions_then
        state = apply(state, read())
        if versions == version:
            return state
    if version is not None:
        fail(f"the reservation has {versions} versions", EXIT_NOT_FOUND)
    return state


def _print_states(states: Shown, as_json: bool) -> None:
    if as_json:
        for state in states:
            print_json(state)
        return
    rows = [
        (
            state["reservationId"],
            state["status"],
            instant(state["createdAt"]),
            instant(state["expiresAt"]),
            instant(state["expiredAt"]),
            state["expirationCount"],
            instant(state["alarmAt"]),
        )
        for state in states
    ]
    print_table(HEADINGS, rows)


def _shown(rows: list[RecordedEvent]) -> Shown:
    mapper = EventMapper()
    return [named(row.originator_id) | render_event(row, mapper) for row in rows]


def _print_events(events: Shown, as_json: bool) -> None:
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
    by = {"by": event["by"]} if "by" in event else {}
    return ", ".join(f"{key} {_fact(key, value)}" for key, value in (event["data"] | by).items())


def _fact(key: str, value: object) -> str | None:
    if type(value) is int and key.endswith(("At", "Time")):
        return instant(value)
    return msgspec.json.encode(value).decode()
