"""Many scheduled and recurring events on the one alarm of an object.

The alarm is always set to the earliest of them; when it rings, a pass runs what is due
(`schedule_pass.py`). How events stand in the object's storage is in `schedule_records.py`,
how one goes on after a run in `domain/scheduled_entry.py`.
"""

import inspect
from functools import partial
from typing import Any

from reservation_expiry.domain.durable_object import EventCancelled
from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.preconditions import NONE, Preconditions
from reservation_expiry.domain.scheduled_entry import Progress, ScheduledEntry, planned
from reservation_expiry.infrastructure.objects import values
from reservation_expiry.infrastructure.objects.cron import next_by_cron
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.schedule_pass import SchedulePass, next_time_for
from reservation_expiry.infrastructure.objects.schedule_records import (
    Event,
    ScheduleRecords,
    entity_tag,
    is_same,
    shown,
)

MAX_PAYLOAD_BYTES = 1024 * 1024
PAGE = 100


class EventSchedule(DurableObject):
    """Override `processEvent(event)`; it is awaited if it is async.

    An event is a dict: `id`, `runAt` (when it is planned next, Unix milliseconds; None if
    it has no next time, for which `nextProblem` says why), `repeatMs`, or `cron` and `zone`,
    or None, `payload`, `runs` (that ended well), `missed` (planned times that passed while
    nothing ran), `gaveUp` (planned times at which it failed seven times), `attempts` (failed
    in a row), `lookAt` (when it is tried next, None if parked), `parked`, and `revision`, a
    number that no other scheduling in this schedule has had.
    """

    _pass: SchedulePass | None = None  # while one is on

    @property
    def _records(self) -> ScheduleRecords:
        return ScheduleRecords(self.ctx.storage)

    async def processEvent(self, event: Event) -> None:
        """Does what the event is for. Raising means: try again later."""
        result = self.process_event(event)
        if inspect.isawaitable(result):
            await result

    def process_event(self, event: Event) -> Any:
        """`processEvent`, for those who write it so."""

    async def scheduleEvent(
        self,
        id: str,
        runAt: int | None = None,
        repeatMs: int | None = None,
        payload: Any = None,
        cron: str | None = None,
        zone: str = "UTC",
    ) -> Event:
        """Adds an event, or replaces the one of that id. Returns it.

        It runs at `runAt`, and every `repeatMs` from there; or by the expression `cron` in
        a time zone (`cron.py`). One that is there already, put with the same, is left as it
        is. Raises InvalidSchedule before anything is stored.
        """
        found = await self.putEvent(id, runAt, repeatMs, payload, cron, zone)
        event: dict[str, Any] = found["event"]
        return event

    async def putEvent(
        self,
        id: str,
        runAt: int | None,
        repeatMs: int | None,
        payload: Any,
        cron: str | None,
        zone: str,
        preconditions: Preconditions = NONE,
    ) -> dict[str, Any]:
        """`scheduleEvent`, answering `event` and whether it is new: `created`. Raises
        PreconditionFailed, too, and has changed nothing then."""
        now_ms = self.ctx.now_ms()
        asked = planned(id, runAt, repeatMs, cron, zone, payload, now_ms, next_by_cron)
        _refuse_unless_kept(payload)
        found = await self._records.get(id)
        _refuse_unless_met(preconditions, found)
        if found is not None and found.progress.next_problem is None and is_same(found, asked):
            return {"event": shown(found), "created": False}
        revision, first_ms = await self._records.new_revision(), asked.progress.run_at_ms
        entry = asked.come_to(Progress(revision, first_ms, first_ms))
        self._records.put(entry, found)
        if found is not None:
            self._record_cancelled(found, "replaced")
        await self._follow()
        return {"event": shown(entry), "created": found is None}

    async def cancelEvent(self, id: str, preconditions: Preconditions = NONE) -> bool:
        """Whether there was one. A run that has begun goes on. Raises PreconditionFailed."""
        found = await self._records.get(id)
        if found is None:
            return False
        _refuse_unless_met(preconditions, found)
        self._records.move(id, found.progress, None)
        self._record_cancelled(found, "cancelled")
        await self._follow()
        return True

    async def getEvent(self, id: str) -> Event | None:
        return await self._records.event(id)

    async def listEvents(self, limit: int = PAGE, after: str = "") -> list[Event]:
        """Events in order of their ids, those behind the id `after`."""
        return await self._records.page("event:", limit, after)

    async def listParked(self, limit: int = PAGE, after: str = "") -> list[Event]:
        return await self._records.page("parked:", limit, after)

    async def redriveEvent(self, id: str) -> bool:
        """Gives a parked event a fresh start. Whether it was parked. Raises InvalidSchedule
        if it still has no next time."""
        found = await self.redrivenEvent(id)
        return found is not None and found["redriven"]

    async def redrivenEvent(
        self, id: str, preconditions: Preconditions = NONE
    ) -> dict[str, Any] | None:
        """`redriveEvent`, answering `event` and whether it was `redriven`, None if there is
        no such event. Raises PreconditionFailed, too."""
        found = await self._records.get(id)
        if found is None:
            return None
        if not found.progress.parked:
            return {"event": shown(found), "redriven": False}
        _refuse_unless_met(preconditions, found)
        after = found.redriven(self.ctx.now_ms(), next_time_for(self.ctx.id))
        self._records.move(id, found.progress, after.progress)
        await self._follow()
        return {"event": shown(after), "redriven": True}

    async def alarm(self) -> None:
        """One pass: begins what is due, and what becomes due, until nothing runs any more."""
        self._pass = SchedulePass(self.ctx, self._records, self.processEvent)
        try:
            await self._pass.run()
        finally:
            self._pass = None
            await self._arm()

    schedule_event = scheduleEvent
    cancel_event = cancelEvent
    get_event = getEvent
    list_events = listEvents
    list_parked = listParked
    redrive_event = redriveEvent

    def _record_cancelled(self, entry: ScheduledEntry, reason: Any) -> None:
        self.ctx.record(
            partial(
                EventCancelled,
                event_id=entry.id,
                revision=entry.progress.revision,
                planned_at_ms=entry.progress.run_at_ms,
                reason=reason,
            )
        )

    async def _follow(self) -> None:
        """Has the pass that is on, or the alarm, go by what has changed."""
        if self._pass is not None:
            self._pass.changed()
        else:
            await self._arm()

    async def _arm(self) -> None:
        """Sets the alarm to the earliest, or to none."""
        storage = self.ctx.storage
        first = await self._records.next_due(1)
        at_ms = max(first[0][0], 1) if first else None
        if at_ms is None:
            if await storage.getAlarm() is not None:
                storage.deleteAlarm()
        else:
            current = await storage.getAlarm()
            overdue = current is not None and at_ms <= current <= self.ctx.now_ms()
            if at_ms != current and not overdue:
                storage.setAlarm(at_ms)


def _refuse_unless_kept(payload: Any) -> None:
    """Raises InvalidSchedule for a payload that cannot be stored."""
    try:
        # It is kept in a dict with the rest of the entry.
        values.encode(payload, "the payload", MAX_PAYLOAD_BYTES, values.MAX_DEPTH - 1)
    except TypeError as error:
        raise InvalidSchedule(str(error)) from error


def _refuse_unless_met(preconditions: Preconditions, found: ScheduledEntry | None) -> None:
    if preconditions != NONE:  # else there is no need of a tag, which takes time to make
        preconditions.refuse_unless_met(None if found is None else entity_tag(shown(found)))
