"""What one transaction will write, gathered in memory and written at once.

Commands run one after the other against it, each seeing what those before it decided.
An aggregate's events imply its alarm row and its read-model row; all three go out
together in `flush`, one statement per table however many commands there were.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast
from uuid import uuid4

from reservation_expiry.domain.durable_object import (
    AlarmEvent,
    ObjectEvent,
    StoredObject,
    alarm_after,
)
from reservation_expiry.domain.events import AlarmScheduled, CapacitySet, ReservationEvent
from reservation_expiry.domain.ids import ITEM_PREFIX, is_object, reservation_name
from reservation_expiry.domain.reservation import Reservation, project, starts_anew
from reservation_expiry.infrastructure.alarm_row import row_set_to
from reservation_expiry.infrastructure.checksum import chain
from reservation_expiry.infrastructure.event_mapper import EventMapper, with_author
from reservation_expiry.infrastructure.projections import reservation_row
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts, EventRow, ObjectRow
from reservation_expiry.infrastructure.stores.sql.session import Session, TailRow
from reservation_expiry.infrastructure.units import Units

READ_BACK_EVENTS = 64


class Work:
    """One command, for the writer to run in a transaction together with others.

    It may raise, and then only it fails: it must stage nothing before. Work that acts on
    the tables themselves has `on_tables` true: it runs once everything decided in the
    batch is written, and what it raises fails the transaction. Work that never touches the
    log, nor a row that other work may wait for, has `appends` false: it need not wait for
    the processes that do. What the service itself needs in order to do its job has
    `keeps_house` true: there is room for it however many callers wait.
    """

    on_tables = False
    appends = True
    keeps_house = False

    aggregate_ids: Sequence[str] = ()
    """What it will ask the unit of work for, fetched for the whole batch in one query."""
    object_ids: Sequence[str] = ()
    """Objects that it will write, whose owners and rows are fetched likewise."""
    item_names: Sequence[str] = ()
    """Items whose counters it will look at, likewise."""

    def run(self, unit: "UnitOfWork") -> Any:
        """Decides and stages. What it returns goes to the caller after the commit."""
        raise NotImplementedError


class UnitOfWork:
    """Made by the writer for one transaction; `now_ms` is its one reading of the clock.

    `loaded` are the tails of the aggregates that the transaction was begun with.
    """

    def __init__(
        self,
        session: Session,
        mapper: EventMapper,
        now_ms: int,
        loaded: tuple[Iterable[str], Iterable[TailRow]] = ((), ()),
    ) -> None:
        self.session = session
        self.now_ms = now_ms
        self.mapper = mapper
        self._tails: dict[str, list[tuple[int, str, bytes]]] = {}
        self._states: dict[str, Reservation | None] = {}
        self._owners: dict[str, str | None] = {}
        self._objects_before: dict[str, ObjectRow] = {}
        self._objects: dict[str, ObjectRow] = {}
        self._object_alarms: dict[str, int | None] = {}
        self._events: list[ReservationEvent | ObjectEvent | CapacitySet] = []
        self._authors: dict[int, str] = {}  # of those that have one, by their place there
        self._changed: set[str] = set()
        self._rescheduled: set[str] = set()
        self.units = Units(session)
        self._attempts: list[AttemptFacts] = []
        self._after_flush: list[Callable[[], object]] = []
        self._take(*loaded)

    def load(self, aggregate_ids: Iterable[str]) -> None:
        """Fetches, in one query, the events that decisions on these will need."""
        wanted = [i for i in set(aggregate_ids) if i not in self._tails]
        if wanted:
            self._take(wanted, self.session.tails(wanted))

    def load_objects(self, object_ids: Iterable[str]) -> None:
        """Fetches, in one query, whose these objects are, with their rows."""
        wanted = [i for i in set(object_ids) if i not in self._owners]
        if not wanted:
            return
        owned = self.session.owned(wanted)
        self._owners.update(dict.fromkeys(wanted))
        for object_id, owner, version, alarm_at_ms in owned:
            self._owners[object_id] = owner
            self._objects_before[object_id] = (object_id, version or 0, alarm_at_ms)

    def _take(self, aggregate_ids: Iterable[str], tails: Iterable[TailRow]) -> None:
        self._tails.update((i, []) for i in aggregate_ids)
        for originator_id, version, topic, state in tails:
            self._tails[originator_id].append((version, topic, state))

    def reservation(self, reservation_id: str) -> Reservation | None:
        """Its state, with what this unit of work has decided so far; None if never held.

        Raises UndecodableEvent if the log does not tell it.
        """
        if reservation_id not in self._states:
            self.load([reservation_id])
            self._states[reservation_id] = self._replay(reservation_id)
        return self._states[reservation_id]

    def append(
        self, reservation_id: str, events: Sequence[ReservationEvent], by: str | None = None
    ) -> Reservation:
        """Adds decided events, with all they imply. The state after them. `by` is the name
        of the token with which their command came."""
        before = self.reservation(reservation_id)
        state = project(before, events)
        if state is None:
            raise ValueError(f"{reservation_id} has no hold for {events!r} to follow")
        self._states[reservation_id] = state
        if state.terms is not None or (before is not None and before.terms is not None):
            self.units.move(before, state)
        if by is not None:
            self._sign(len(events) * (by,))
        self._events.extend(events)
        self._changed.add(reservation_id)
        if any(type(event) is AlarmScheduled for event in events):
            self._rescheduled.add(reservation_id)
        return state

    def set_capacity(self, name: str, capacity: int, by: str | None = None) -> None:
        """Adds that there are so many units of an item, by whose word."""
        version = self.units.item(name)[1] + 1
        self._sign([by])
        self._events.append(CapacitySet(ITEM_PREFIX + name, version, capacity))
        self.units.set_capacity(name, version, capacity)

    def object_row(self, object_id: str) -> ObjectRow:
        """(id, version, what its alarm is set to), with what this unit of work has added."""
        row = self._objects.get(object_id) or self._objects_before.get(object_id)
        return row or self.session.object_row(object_id) or (object_id, 0, None)

    def owner_of(self, object_id: str) -> str | None:
        """Whose the object is; None if it is free."""
        self.load_objects([object_id])
        return self._owners[object_id]

    def append_to_object(
        self, object_id: str, events: Sequence[ObjectEvent], authors: Sequence[str | None] = ()
    ) -> None:
        """Adds what an object did, with the alarm it implies. `authors` are by whom."""
        _, _, alarm_at_ms = self.object_row(object_id)
        for event in events:
            if isinstance(event, AlarmEvent):
                alarm_at_ms = alarm_after(event, alarm_at_ms)
                self._object_alarms[object_id] = alarm_at_ms
        self._sign(authors)
        self._events.extend(events)
        self._objects[object_id] = (object_id, events[-1].originator_version, alarm_at_ms)

    def _sign(self, authors: Sequence[str | None]) -> None:
        """Of the events that are added next."""
        for number, by in enumerate(authors, start=len(self._events)):
            if by is not None:
                self._authors[number] = by

    def reproject(self, reservation_id: str) -> Reservation | None:
        """Writes the alarm and the read-model row anew from the log. The state found."""
        state = self.reservation(reservation_id)
        self._changed.add(reservation_id)
        self._rescheduled.add(reservation_id)
        return state

    def reproject_any(self, aggregate_id: str) -> Reservation | StoredObject | None:
        """`reproject` or `reproject_object`, as its id says."""
        if is_object(aggregate_id):
            return self.reproject_object(aggregate_id)
        return self.reproject(aggregate_id)

    def reproject_object(self, object_id: str) -> StoredObject | None:
        """Writes its row and its alarm anew from the log. The state found."""
        state = StoredObject()
        for row in self.session.history(object_id):
            state.apply(self.mapper.decode(object_id, *row))
        for event in self._events:
            if event.originator_id == object_id:
                state.apply(cast(ObjectEvent, event))
        if not state.version:
            self._objects_before.pop(object_id, None)
            self.session.delete_objects([object_id])
            self.session.delete_alarms([object_id])
            return None
        self._objects[object_id] = (object_id, state.version, state.alarm_at_ms)
        self._object_alarms[object_id] = state.alarm_at_ms
        return state

    def keep_attempts(self, attempts: Sequence[AttemptFacts]) -> None:
        """Has it kept how these ended."""
        self._attempts += attempts

    def flush_attempts(self) -> None:
        """Writes those that are not written yet, with ids in the order of the commits."""
        if not self._attempts:
            return
        kept, self._attempts = self._attempts, []
        when, which = f"{self.now_ms:014d}-", f"-{uuid4().hex[:12]}"
        rows = [(f"{when}{number:06d}{which}", *facts) for number, facts in enumerate(kept)]
        self.session.put_attempts(rows)

    def after_flush(self, action: Callable[[], object]) -> None:
        """Has `action` run in this transaction once everything decided is written."""
        self._after_flush.append(action)

    def kinds(self) -> Iterator[str]:
        """The type of each event that was added."""
        return (type(event).__name__ for event in self._events)

    def flush(self) -> None:
        """Writes it all. A failure here fails the whole transaction."""
        if self._events:
            self.session.append(self._event_rows())
        if self._changed:
            self._write_projections()
        if self._objects:
            self._write_objects()
        self.units.flush()
        self.flush_attempts()
        for action in self._after_flush:
            action()

    def _replay(self, reservation_id: str) -> Reservation | None:
        """From the newest event that starts anew, or from the first if the tail has none."""
        events: deque[ReservationEvent] = deque()
        for row in reversed(self._tails[reservation_id]):
            events.appendleft(self.mapper.decode(reservation_id, *row))
            if starts_anew(events[0]):
                break
        else:
            if events and events[0].originator_version > 1:
                self._read_back(reservation_id, events)
        return project(None, events)

    def _read_back(self, reservation_id: str, events: deque[ReservationEvent]) -> None:
        """Puts older events before these, a page at a time, until one starts anew."""
        while rows := self.session.history_before(
            reservation_id, events[0].originator_version, READ_BACK_EVENTS
        ):
            for row in rows:
                events.appendleft(self.mapper.decode(reservation_id, *row))
                if starts_anew(events[0]):
                    return

    def _event_rows(self) -> list[EventRow]:
        position, checksum, _ = self.session.head()
        rows = []
        for number, event in enumerate(self._events):
            position += 1
            stored = self.mapper.to_stored_event(event)
            originator_id, version = str(stored.originator_id), stored.originator_version
            topic, state = stored.topic, stored.state
            if number in self._authors:
                state = with_author(state, self._authors[number])
            checksum = chain(checksum, position, originator_id, version, topic, self.now_ms, state)
            rows.append((position, originator_id, version, topic, state, self.now_ms, checksum))
        return rows

    def _write_projections(self) -> None:
        closed, alarms, rows, gone = [], [], [], []
        for reservation_id in self._changed:
            state = self._states[reservation_id]
            if state is None or state.alarm_at_ms is None:
                closed.append(reservation_id)
            elif reservation_id in self._rescheduled:
                alarms.append(row_set_to(reservation_id, state.alarm_at_ms))
            if state is None:
                gone.append(reservation_name(reservation_id))
            else:
                rows.append(reservation_row(state))
        if alarms:
            self.session.put_alarms(alarms)
        if closed:
            self.session.delete_alarms(closed)
        if rows:
            self.session.put_reservations(rows)
        if gone:
            self.session.delete_reservations(gone)

    def _write_objects(self) -> None:
        self.session.put_objects(list(self._objects.values()))
        alarms = [row_set_to(i, at) for i, at in self._object_alarms.items() if at is not None]
        if alarms:
            self.session.put_alarms(alarms)
        gone = [object_id for object_id, at in self._object_alarms.items() if at is None]
        if gone:
            self.session.delete_alarms(gone)
