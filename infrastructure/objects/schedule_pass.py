"""A pass over a schedule: its object's alarm has rung, and what is due is run.

Events run beside each other, begun in the order in which they are due, so a slow one makes
no other late. What a run ended with is decided once, written together, and on disk before
another begins in its turn; nothing that goes wrong after a run has ended well runs it again.

Where a pass was cut off because its process ended, whichever event ended it must not be
begun beside the others again and again. What was due then is begun in small companies,
marked before it is begun: so the next time the one that ends the process is known, and the
others are not counted (`domain.alarm.company_after`).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import random
from typing import Any

from reservation_expiry.domain.alarm import company_after
from reservation_expiry.domain.durable_object import RunEnded, RunOutcome
from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.domain.ids import ObjectId
from reservation_expiry.domain.scheduled_entry import NextTime, ScheduledEntry, next_time_of
from reservation_expiry.infrastructure.alarms.attempt import said_by
from reservation_expiry.infrastructure.objects.cron import next_by_cron
from reservation_expiry.infrastructure.objects.durable_object import Context
from reservation_expiry.infrastructure.objects.running_code import called
from reservation_expiry.infrastructure.objects.schedule_records import (
    MAX_DUE,
    Event,
    Mark,
    ScheduleRecords,
    shown,
)
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts

MAX_RUNNING = MAX_DUE  # events of one schedule under way at once
# A pass that is older begins nothing more once the runs it had by then have ended. With the
# limit of each run that keeps it well under the limit of an alarm's handler.
PASS_SECONDS = 60.0
RUN_SECONDS = 240.0  # a run that takes longer counts as failed
QUIET_SECONDS = 2.0  # how long what runs may take to end before a marked company begins
ALONE_SECONDS = 10.0  # how long that has then for itself, before others begin beside it

logger = logging.getLogger(__name__)


class Interrupted(Exception):
    """The process ended while the event ran."""


class SchedulePass:
    """`run()` it; `changed()` while it runs, when something was put or cancelled."""

    def __init__(
        self, ctx: Context, records: ScheduleRecords, process: Callable[[Event], Any]
    ) -> None:
        self._ctx = ctx
        self._records = records
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._running: dict[asyncio.Task[None], str] = {}
        self._marked: set[str] = set()
        self._hold_until: float | None = None  # the loop's time, before which nothing begins

    def changed(self) -> None:
        self._news.set()

    async def run(self) -> None:
        if await self._finds_the_killer():
            return  # that is noted, and the alarm of the next pass counts anew
        try:
            await self._run_all()
        finally:
            running = set(self._running)
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
            self._records.unmark(list(self._marked))

    async def _run_all(self) -> None:
        ends, early = self._loop.time() + PASS_SECONDS, None
        while True:
            self._news.clear()
            if early is None and self._loop.time() >= ends:
                early = set(self._running)  # what they hold up must not wait for them
            begins = not self._ctx.should_yield() and (
                early is None or bool(early & self._running.keys())
            )
            if begins:
                await self._begin_due()
            if not self._running:
                break
            await self._wait(begins)

    async def _wait(self, begins: bool) -> None:
        """Until a run has ended, another is to be begun, or somebody has put something."""
        pause = await self._pause() if begins else None
        news = asyncio.ensure_future(self._news.wait())
        try:
            done, _ = await asyncio.wait(
                [*self._running, news], timeout=pause, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            news.cancel()
        for task in done - {news}:
            self._marked.discard(self._running.pop(task))  # type: ignore[arg-type]  # no news
            task.result()

    async def _pause(self) -> float | None:
        """Seconds until something is to be begun; None if only an end can bring that."""
        if self._hold_until is not None:
            return max(self._hold_until - self._loop.time(), 0)
        busy = set(self._running.values())
        if len(busy) >= MAX_RUNNING:
            return None
        waiting = await self._records.next_due(len(busy) + 1)
        next_ms = min((at_ms for at_ms, id in waiting if id not in busy), default=None)
        return None if next_ms is None else max(next_ms - self._ctx.now_ms(), 0) / 1000

    # Beginning

    async def _begin_due(self) -> None:
        busy = set(self._running.values())
        due = []
        for place, id in (await self._records.due(self._ctx.now_ms())).items():
            if id in busy:
                continue
            found = await self._records.get(id)
            due.append(found) if found is not None else self._records.drop(place)
        careful = [entry for entry in due if entry.progress.company]
        if self._must_hold(bool(careful)):
            return
        if careful:
            await self._begin_marked(careful[: careful[0].progress.company])
            return
        for entry in due[: MAX_RUNNING - len(busy)]:
            self._begin(entry)

    def _must_hold(self, careful: bool) -> bool:
        """Whether nothing is to be begun yet: a marked company has its time for itself, or
        one is to begin, and what runs has a little time to end first."""
        now = self._loop.time()
        if not self._running or (self._hold_until is not None and now >= self._hold_until):
            self._hold_until = None
        elif self._hold_until is None and careful:
            self._hold_until = now + QUIET_SECONDS
        return self._hold_until is not None

    async def _begin_marked(self, company: list[ScheduledEntry]) -> None:
        revisions = {entry.id: entry.progress.revision for entry in company}
        self._records.mark(revisions, self._ctx.now_ms())
        self._marked.update(revisions)
        await self._ctx.storage.sync()
        for entry in company:
            if await self._records.progress(entry.id) == entry.progress:  # not changed meanwhile
                self._begin(entry)
        self._hold_until = self._loop.time() + ALONE_SECONDS

    def _begin(self, entry: ScheduledEntry) -> None:
        task = asyncio.ensure_future(self._run(entry))
        self._running[task] = entry.id

    # Running, and what follows

    async def _run(self, entry: ScheduledEntry) -> None:
        began_ms = self._ctx.now_ms()
        error: BaseException | None = None
        try:
            async with asyncio.timeout(RUN_SECONDS):
                await called(self._process, (shown(entry),), {})
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the pass ends
            error = cancelled
        except Exception as raised:
            error = raised
        await self._settle(entry, began_ms, error)
        await self._ctx.storage.sync()

    async def _settle(
        self, entry: ScheduledEntry, began_ms: int, error: BaseException | None
    ) -> None:
        """Writes what has ended, and what follows from it."""
        id, began = entry.id, entry.progress
        if began.run_at_ms is None:
            raise ValueError(f"{id!r} has run, and was not planned to")
        now_ms, next_time = self._ctx.now_ms(), next_time_for(self._ctx.id)
        after: ScheduledEntry | None
        outcome: RunOutcome = "ok"
        if error is None:
            after = entry.ended_well(now_ms, next_time)
        else:
            interrupted = isinstance(error, Interrupted)
            after, outcome = entry.failed(now_ms, random(), next_time, interrupted=interrupted)
        self._report(entry, after, outcome, error)
        self._ctx.record(
            partial(
                RunEnded,
                event_id=id,
                revision=began.revision,
                planned_at_ms=began.run_at_ms,
                began_at_ms=began_ms,
                ended_at_ms=now_ms,
                attempt=began.attempts + 1,
                outcome=outcome,
            )
        )
        self._keep(entry, began_ms, now_ms, outcome, error)
        if id in self._marked:
            self._records.unmark([id])
        current = await self._records.progress_of(id)
        if current is not None and current.revision == began.revision:
            self._records.move(id, current, None if after is None else after.progress)
        # Else it was cancelled, or put anew, while it ran: that holds.

    def _keep(
        self,
        began: ScheduledEntry,
        began_ms: int,
        ended_ms: int,
        outcome: RunOutcome,
        error: BaseException | None,
    ) -> None:
        planned_ms = began.progress.run_at_ms or began_ms
        self._ctx.keep_attempt(
            AttemptFacts(
                str(self._ctx.id),
                began.id,
                planned_ms,
                ended_ms,
                outcome,
                began.progress.attempts,
                began_ms - planned_ms,
                ended_ms - began_ms,
                None if error is None else said_by(error),
            )
        )

    def _report(
        self,
        began: ScheduledEntry,
        after: ScheduledEntry | None,
        outcome: RunOutcome,
        error: BaseException | None,
    ) -> None:
        name, planned_ms = f"event {began.id} of {self._ctx.id}", began.progress.run_at_ms
        if outcome == "gave-up":
            self._ctx.count("gaveUp")
            logger.error("%s: its run planned for %s is given up: %r", name, planned_ms, error)
        elif error is not None:
            logger.warning("%s failed: %r", name, error)
        if after is None or not after.progress.parked:
            return
        problem = after.progress.next_problem
        if problem is not None:
            logger.error("%s is parked, for it has no next time: %s", name, problem)
        else:
            logger.error("%s is parked", name)

    # After the process of an earlier pass has ended

    async def _finds_the_killer(self) -> bool:
        """Looks what an earlier pass was at when its process ended, if it did. Whether that
        was one run alone: it ended the process."""
        marked, together = await self._records.marked(), self._ctx.cut_off()
        self._records.unmark(list(marked))
        if not together:
            return False  # it was stopped, or its object dropped: that is nobody's fault
        if together == len(marked) == 1:
            await self._interrupted(*marked.popitem())
            return True
        if together == 1 or not marked:
            suspects = list(marked) or (await self._records.due(self._ctx.now_ms())).values()
            for id in suspects:
                await self._suspect(id, company_after(len(suspects)))
        return False  # else another object's alarm may have done it: these stay as they are

    async def _interrupted(self, id: str, mark: Mark) -> None:
        """The one that was being run alone has ended its process: that was an attempt."""
        entry = await self._records.get(id)
        if entry is not None and entry.progress.revision == mark.revision:
            error = Interrupted("its process ended while it ran")
            await self._settle(entry, mark.began_ms, error)

    async def _suspect(self, id: str, company: int) -> None:
        entry = await self._records.get(id)
        if entry is not None and (after := entry.in_company(company)) is not entry:
            self._records.move(id, entry.progress, after.progress)


def next_time_for(schedule: ObjectId) -> NextTime:
    """How the entries of a schedule find their next times.

    Whatever keeps the next time from being said is a reason why there is none (for a run
    has ended, and must not be run again for it).
    """

    def next_time(entry: ScheduledEntry, planned_ms: int, now_ms: int) -> tuple[int, int]:
        try:
            return next_time_of(entry, planned_ms, now_ms, next_by_cron)
        except InvalidSchedule:
            raise
        except Exception as error:
            logger.exception("event %s of %s has no next time", entry.id, schedule)
            raise InvalidSchedule(f"its next time cannot be found: {error!r:.500}") from error

    return next_time
