"""The log as the `eventsourcing` library sees it: its recorder interfaces over our store.

Saving goes through the writer like every other command, so an aggregate saved with the
library's own `Application.save` gets positions, checksums, an alarm and a read-model row, or
is refused.
"""

import threading
from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from eventsourcing.persistence import (
    ApplicationRecorder,
    InfrastructureFactory,
    Notification,
    NotSupportedError,
    StoredEvent,
    Subscription,
    TrackingRecorder,
)
from eventsourcing.utils import Environment

from reservation_expiry.domain.events import ReservationEvent
from reservation_expiry.domain.ids import is_object
from reservation_expiry.domain.reservation import Reservation, broken_rule, project
from reservation_expiry.infrastructure.errors import EventRefused, VersionConflict
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.stores.sql.queries import Queries, RecordedEvent
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from reservation_expiry.infrastructure.writer import Writer

FOLLOW_INTERVAL_SECONDS = 0.2
FOLLOW_CHUNK = 500


class RecordEvents(Work):
    """Appends events that were decided elsewhere, each on the version it was decided on.

    Raises VersionConflict, and EventRefused for what the rules would not have decided: an
    object's events, which its owner alone may write, or a hold whose alarm is not set.
    """

    def __init__(self, mapper: EventMapper, stored_events: Sequence[StoredEvent]) -> None:
        self._events = [mapper.to_domain_event(stored) for stored in stored_events]
        for event in self._events:
            if is_object(event.originator_id):
                raise EventRefused(
                    f"{event.originator_id} is an object, and its owner alone writes its events: "
                    "call its methods"
                )
        self.aggregate_ids = tuple({event.originator_id for event in self._events})

    def run(self, unit: UnitOfWork) -> None:
        states = {i: unit.reservation(i) for i in self.aggregate_ids}
        for event in self._events:
            states[event.originator_id] = _followed_by(states[event.originator_id], event)
        for aggregate_id, state in states.items():
            if state is not None and state.status == "held" and state.alarm_at_ms is None:
                raise EventRefused(f"{aggregate_id} would be held without an alarm, for ever")
        for event in self._events:
            unit.append(event.originator_id, (event,))


def _followed_by(state: Reservation | None, event: ReservationEvent) -> Reservation | None:
    version = 0 if state is None else state.version
    if event.originator_version != version + 1:
        raise VersionConflict(
            f"{event.originator_id} is at version {version}: version "
            f"{event.originator_version} does not follow"
        )
    broken = broken_rule(state, event)
    if broken is not None:
        raise EventRefused(f"{event.originator_id}: {broken}")
    return project(state, (event,))


class Recorder(ApplicationRecorder):
    """Raises VersionConflict (an `IntegrityError` to the library) for a stale save."""

    def __init__(self, queries: Queries, writer: Writer, mapper: EventMapper) -> None:
        self._queries = queries
        self._writer = writer
        self._mapper = mapper

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        if stored_events:
            self._writer.execute(RecordEvents(self._mapper, stored_events))
        return None

    def select_events(
        self,
        originator_id: Any,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        rows = list(
            takewhile(
                lambda row: lte is None or row.originator_version <= lte,
                self._queries.history(originator_id, gt or 0),
            )
        )
        if desc:
            rows.reverse()
        return [_stored(row) for row in rows[:limit]]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        after = (start or 0) - (1 if inclusive_of_start and start else 0)
        return [
            _notification(row)
            for row in self._queries.events_after(after, limit, stop=stop, topics=topics)
        ]

    def max_notification_id(self) -> int | None:
        return self._queries.head().position or None

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        return FollowLog(self, gt, topics)


class FollowLog(Subscription["Recorder"]):
    """Yields every event of the log from a position on, for ever, as it is committed."""

    def __init__(self, recorder: Recorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder, gt, topics)
        self._waiting: deque[Notification] = deque()
        self._stopped = threading.Event()

    def stop(self) -> None:
        super().stop()
        self._stopped.set()

    def __next__(self) -> Notification:
        while not self._waiting:
            if self._stopped.is_set():
                raise StopIteration
            self._waiting.extend(
                self._recorder.select_notifications(
                    self._last_notification_id or 0,
                    FOLLOW_CHUNK,
                    topics=self._topics,
                    inclusive_of_start=False,
                )
            )
            if not self._waiting:
                self._stopped.wait(FOLLOW_INTERVAL_SECONDS)
        self._last_notification_id = self._waiting[0].id
        return self._waiting.popleft()


class StoreFactory(InfrastructureFactory[TrackingRecorder]):
    """Hands the library the one recorder there is."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(Environment())
        self._recorder = recorder

    def aggregate_recorder(self, purpose: str = "events") -> Recorder:
        if purpose != "events":
            raise NotSupportedError(f"there is no store for {purpose}")
        return self._recorder

    def application_recorder(self) -> Recorder:
        return self._recorder

    def tracking_recorder(self, tracking_recorder_class: Any = None) -> Any:
        raise NotSupportedError("the store does not track other applications")

    def process_recorder(self) -> Any:
        raise NotSupportedError("the store does not track other applications")


def _stored(row: RecordedEvent) -> StoredEvent:
    return StoredEvent(row.originator_id, row.originator_version, row.topic, row.state)


def _notification(row: RecordedEvent) -> Notification:
    return Notification(
        row.originator_id, row.originator_version, row.topic, row.state, row.position
    )
