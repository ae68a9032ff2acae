"""What must be true of a database whatever happened to the processes on it.

Reads one snapshot of it with its own SQL, so that it does not trust the code it
checks; only the meaning of an event, a checksum and an alarm's state are the product's.
Numbers in the text are those of the invariants in the design. Safe beside a live server.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

import msgspec

from reservation_expiry.domain.events import (
    AlarmScheduled,
    Confirmed,
    Expired,
    Extended,
    Held,
    Released,
    ReservationEvent,
)
from reservation_expiry.domain.ids import ID_PREFIX, ITEM_PREFIX
from reservation_expiry.domain.reservation import Reservation, project
from reservation_expiry.domain.terms import Terms
from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.checksum import GENESIS, chain
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.database import Connection, snapshot, sql

SHOWN = 20  # problems listed in a failure; the rest are counted


@dataclass(frozen=True)
class Log:
    """What the log tells, by reservation name."""

    events: dict[str, list[ReservationEvent]]
    states: dict[str, Reservation]

    def topics(self, name: str) -> list[str]:
        """["Held", "AlarmScheduled", ...] of one reservation, in order."""
        return [type(event).__name__ for event in self.events.get(name, [])]

    def counts(self) -> Counter[str]:
        """How many events of each class there are in all."""
        return Counter(type(event).__name__ for of in self.events.values() for event in of)


def check_invariants(address: Address) -> Log:
    """The log, replayed. Raises AssertionError with all that is wrong with the database."""
    with snapshot(address) as connection:
        problems = list(_problems_of_the_order(connection))
        log = read_log(connection)
        problems += _problems_of_the_holds(log)
        problems += _problems_of_the_read_model(connection, log)
        problems += _problems_of_the_alarms(connection, log)
        problems += _problems_of_the_units(connection)
    more = f"\n... and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    assert not problems, f"{address}:\n" + "\n".join(problems[:SHOWN]) + more
    return log


def read_log(connection: Connection) -> Log:
    rows = connection.rows(
        "SELECT originator_id, originator_version, topic, state FROM events"
        " ORDER BY originator_id, originator_version"
    )
    decode = EventMapper().decode
    events = {
        originator_id.removeprefix(ID_PREFIX): [decode(*row) for row in history]
        for originator_id, history in groupby(rows, key=itemgetter(0))
        if originator_id.startswith(ID_PREFIX)
    }
    return Log(events, {name: project(None, history) for name, history in events.items()})


def alarms(address: Address) -> dict[str, tuple[float | None, bytes]]:
    """{name: (next_run_time, job_state)} of every alarm row."""
    rows = sql(address, "SELECT id, next_run_time, job_state FROM alarms")
    return {row[0].removeprefix(ID_PREFIX): row[1:] for row in rows}


def _problems_of_the_order(connection: Connection) -> Iterator[str]:
    """5: positions are 1..head without a gap, versions 1..n, and the checksums chain."""
    checksum, expected, versions = GENESIS, 0, Counter()
    for position, aggregate, version, topic, state, recorded_at_ms, stored in connection.rows(
        "SELECT position, originator_id, originator_version, topic, state, recorded_at_ms,"
        " checksum FROM events ORDER BY position"
    ):
        expected += 1
        versions[aggregate] += 1
        if position != expected:
            yield f"position {position} where {expected} should be"
            expected = position
        if version != versions[aggregate]:
            yield f"{aggregate} version {version} where {versions[aggregate]} should be"
        right = chain(checksum, position, aggregate, version, topic, recorded_at_ms, state)
        if stored != right:
            yield f"the checksum at position {position} does not follow"
        checksum = stored
    ((head, head_checksum, projected),) = connection.rows(
        "SELECT position, checksum, projected_position FROM log_head"
    )
    if head != expected or head_checksum != checksum:
        yield f"the head says {head}, the log ends at {expected} (or its checksum differs)"
    if projected != head:
        yield f"the projections stand at {projected}, the log at {head}"


def _problems_of_the_holds(log: Log) -> Iterator[str]:
    """1: a hold ends at most once, 2: not before its time, and 6: before another one begins,
    unless that one moves it while it runs."""
    for name, history in log.events.items():
        held: Held | None = None
        ended = False
        for event in history:
            if type(event) is Held:
                if held and not ended and held.expires_at_ms <= event.created_at_ms:
                    yield f"{name} version {event.originator_version} begins, and the last is open"
                held, ended = event, False
            elif type(event) is Extended and held is not None:
                held = replace(held, expires_at_ms=event.expires_at_ms)
            elif type(event) in (Expired, Confirmed, Released):
                if held is None or ended:
                    yield f"{name} version {event.originator_version} ends no open hold"
                elif type(event) is Expired and event.expired_at_ms < held.expires_at_ms:
                    yield f"{name} expired {held.expires_at_ms - event.expired_at_ms} ms early"
                elif type(event) is not Expired and event.at_ms >= held.expires_at_ms:
                    yield f"{name} ended {event.at_ms - held.expires_at_ms} ms too late"
                ended = True


def _problems_of_the_read_model(connection: Connection, log: Log) -> Iterator[str]:
    """4: the read model is what replaying the log gives, row for row."""
    rows = connection.rows(
        "SELECT name, version, status, created_at_ms, expires_at_ms, expired_at_ms,"
        " expiration_count, alarm_at_ms, ended_at_ms, terms FROM reservations"
    )
    found = {row[0]: Reservation(ID_PREFIX + row[0], *row[1:9], _terms(row[9])) for row in rows}
    for name in sorted(found.keys() | log.states.keys()):
        if found.get(name) != log.states.get(name):
            yield f"{name}: the row is {found.get(name)}, the log says {log.states.get(name)}"


def _terms(text: str | None) -> Terms | None:
    return None if text is None else msgspec.json.decode(text, type=Terms)


def _problems_of_the_units(connection: Connection) -> Iterator[str]:
    """7: no append takes an item past its capacity, and the counters say what is taken."""
    capacities: dict[str, int] = {}
    states: dict[str, Reservation | None] = {}
    taken: Counter[tuple[str, str]] = Counter()
    decode = EventMapper().decode
    for row in connection.rows(
        "SELECT originator_id, originator_version, topic, state FROM events ORDER BY position"
    ):
        if row[0].startswith(ITEM_PREFIX):
            capacities[row[0].removeprefix(ITEM_PREFIX)] = decode(*row).capacity
        if not row[0].startswith(ID_PREFIX):
            continue
        before = states.get(row[0])
        after = states[row[0]] = project(before, [decode(*row)])
        for state, sign in ((before, -1), (after, 1)):
            for item, units in _lines(state):
                taken[item, state.status] += sign * units
        if row[2].endswith(".Held"):
            for item, _ in _lines(after):
                units = taken[item, "held"] + taken[item, "confirmed"]
                if units > capacities.get(item, 1):
                    yield f"{row[0]} version {row[1]} takes {item} to {units}"
    found = {
        (name, kind): units
        for name, held, confirmed in connection.rows("SELECT name, held, confirmed FROM items")
        for kind, units in (("held", held), ("confirmed", confirmed))
        if units
    }
    right = {key: units for key, units in taken.items() if units}
    if found != right:
        yield f"the counters say {found}, the log says {right}"


def _lines(state: Reservation | None) -> tuple[tuple[str, int], ...]:
    if state is None or state.terms is None or state.status not in ("held", "confirmed"):
        return ()
    return state.terms.lines


def _problems_of_the_alarms(connection: Connection, log: Log) -> Iterator[str]:
    """3: an open hold has one alarm, for its last AlarmScheduled; no other has any.

    That there is not a second one is the primary key's doing.
    """
    rows = [
        row
        for row in connection.rows("SELECT id, job_state FROM alarms")
        if row[0].startswith(ID_PREFIX)
    ]
    found = {row[0].removeprefix(ID_PREFIX): alarm_row.decode(row[1]) for row in rows}
    for name in sorted(found.keys() | log.events.keys()):
        right = _scheduled_time_ms(log.events.get(name, []))
        alarm = found.get(name)
        at = None if alarm is None else alarm.scheduled_time
        if at != right:
            yield f"{name}: its alarm is for {at}, the log says {right}"


def _scheduled_time_ms(history: list[ReservationEvent]) -> int | None:
    scheduled = None
    for event in history:
        if type(event) is AlarmScheduled:
            scheduled = event.scheduled_time_ms
        elif type(event) in (Expired, Confirmed, Released):
            scheduled = None
    return scheduled
