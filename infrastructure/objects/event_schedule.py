"""Many scheduled and recurring events on the one alarm of an object.

`event:<id>` is an event; `due:<when>:<id>` says when it is to be looked at, in an order
that makes the earliest the first key. So adding, moving, cancelling and finding what is
due take a few keys each, however many events there are. The alarm is always set to the
earliest of them.

Events run beside each other, begun in the order in which they are due, so a slow one
makes no other late. Each has its own retries by the alarm rules, and is parked alone.
What a run changed is on disk before another begins in its turn.
"""

import asyncio
import inspect
import logging
from random import random
from typing import Any

from domain.alarm import next_attempt_at_ms
from domain.errors import InvalidSchedule
from domain.schedule import MAX_ID_CHARACTERS, check_event, next_run
from infrastructure.objects import values
from infrastructure.objects.cron import next_by_cron, next_run_by_cron
from infrastructure.objects.durable_object import DurableObject

MAX_RUNNING = 100  # events of one object under way at once
# A pass that is older begins nothing more once the runs it had by then have ended. With the
# limit of each run that keeps it well under the limit of an alarm's handler.
PASS_SECONDS = 60.0
RUN_SECONDS = 240.0  # a run that takes longer counts as failed
MAX_PAYLOAD_BYTES = 1024 * 1024
PAGE = 100
MAX_PAGE = 1_000

Event = dict[str, Any]

logger = logging.getLogger(__name__)


class EventSchedule(DurableObject):
    """Override `processEvent(event)`; it is awaited if it is async.

    An event is a dict: `id`, `runAt` (when it is planned next, Unix milliseconds),
    `repeatMs`, or `cron` and `zone`, or None, `payload`, `runs` (that ended well), `missed`
    (planned times that passed while nothing ran), `attempts` (failed in a row), `lookAt`
    (when it is tried next, None if parked), `parked`, and `revision`, a number that no other
    scheduling in this schedule has had.
    """

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
        a time zone (`cron.py`). Raises InvalidSchedule before anything is stored.
        """
        found = await self.putEvent(id, runAt, repeatMs, payload, cron, zone)
        return found["event"]

    async def putEvent(
        self,
        id: str,
        runAt: int | None,
        repeatMs: int | None,
        payload: Any,
        cron: str | None,
        zone: str,
    ) -> dict[str, Any]:
        """`scheduleEvent`, answering `event` and whether it is new: `created`."""
        if cron is not None:
            if runAt is not None or repeatMs is not None:
                raise InvalidSchedule("an event has runAt or cron, not both")
            runAt = next_by_cron(cron, zone, self.ctx.now_ms())
        check_event(id, runAt, repeatMs)
        try:
            # It is kept in a dict with the rest of the event.
            values.encode(payload, "the payload", MAX_PAYLOAD_BYTES, values.MAX_DEPTH - 1)
        except TypeError as error:
            raise InvalidSchedule(str(error)) from error
        before = await self.getEvent(id)
        event = {
            "id": id,
            "runAt": runAt,
            "lookAt": runAt,
            "repeatMs": repeatMs,
            "cron": cron,
            "zone": None if cron is None else zone,
            "payload": payload,
            "runs": 0,
            "missed": 0,
            "attempts": 0,
            "parked": False,
            "revision": (await self.ctx.storage.get("revision") or 0) + 1,
        }
        await self._replace(before, event)
        self.ctx.storage.put("revision", event["revision"])
        await self._arm()
        return {"event": event, "created": before is None}

    async def cancelEvent(self, id: str) -> bool:
        """Whether there was one. A run that has begun goes on."""
        event = await self.getEvent(id)
        if event is None:
            return False
        await self._replace(event, None)
        await self._arm()
        return True

    async def getEvent(self, id: str) -> Event | None:
        if len(id) > MAX_ID_CHARACTERS:
            return None  # nothing can be kept under such a key
        return await self.ctx.storage.get(f"event:{id}")

    async def listEvents(self, limit: int = PAGE, after: str = "") -> list[Event]:
        """Events in order of their ids, those behind the id `after`."""
        found = await self._page("event:", limit, after)
        return list(found.values())

    async def listParked(self, limit: int = PAGE, after: str = "") -> list[Event]:
        found = await self._page("parked:", limit, after)
        return [event for id in found.values() if (event := await self.getEvent(id))]

    async def redriveEvent(self, id: str) -> bool:
        """Gives a parked event a fresh start. Whether it was parked."""
        event = await self.getEvent(id)
        if event is None or not event["parked"]:
            return False
        afresh = {"parked": False, "attempts": 0, "lookAt": self.ctx.now_ms()}
        await self._replace(event, event | afresh)
        await self._arm()
        return True

    async def alarm(self) -> None:
        """One pass: begins what is due, and what becomes due, until nothing runs any more."""
        running: dict[asyncio.Task[None], str] = {}
        self._changed = asyncio.Event()
        try:
            await self._pass(running)
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
            self._changed = None
            await self._arm()

    async def _pass(self, running: dict[asyncio.Task[None], str]) -> None:
        loop = asyncio.get_running_loop()
        ends, early = loop.time() + PASS_SECONDS, None
        while True:
            self._changed.clear()
            if early is None and loop.time() >= ends:
                early = set(running)  # what they hold up must not wait for them
            begins = not self.ctx.should_yield() and (early is None or bool(early & running.keys()))
            if begins:
                await self._begin_due(running)
            if not running:
                break
            await self._wait(running, begins)

    schedule_event = scheduleEvent
    cancel_event = cancelEvent
    get_event = getEvent
    list_events = listEvents
    list_parked = listParked
    redrive_event = redriveEvent

    _changed: asyncio.Event | None = None  # while a pass is on: something was scheduled

    async def _page(self, prefix: str, limit: int, after: str) -> dict[str, Any]:
        start = f"{prefix}{after}\0" if after else None
        return await self.ctx.storage.list(prefix=prefix, start=start, limit=min(limit, MAX_PAGE))

    async def _begin_due(self, running: dict[asyncio.Task[None], str]) -> None:
        busy = set(running.values())
        due = await self.ctx.storage.list(
            prefix="due:", end=_due_key(self.ctx.now_ms() + 1, ""), limit=MAX_RUNNING
        )
        for id in due.values():
            if id not in busy and len(running) < MAX_RUNNING:
                task = asyncio.ensure_future(self._run(await self.getEvent(id)))
                running[task] = id

    async def _wait(self, running: dict[asyncio.Task[None], str], begins: bool) -> None:
        """Until a run has ended, another is due, or somebody has scheduled something."""
        busy = set(running.values())
        waiting = await self.ctx.storage.list(prefix="due:", limit=len(busy) + 1)
        next_ms = min((_due_ms(key) for key, id in waiting.items() if id not in busy), default=None)
        seconds = None if next_ms is None else max(next_ms - self.ctx.now_ms(), 0) / 1000
        if len(running) >= MAX_RUNNING or not begins:
            seconds = None
        changed = asyncio.ensure_future(self._changed.wait())
        done, _ = await asyncio.wait(
            [*running, changed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        changed.cancel()
        for task in done - {changed}:
            del running[task]
            task.result()

    async def _run(self, event: Event) -> None:
        try:
            async with asyncio.timeout(RUN_SECONDS):
                await self.processEvent(dict(event))
            await self._succeeded(event["id"], event["revision"], event["runAt"])
        except asyncio.CancelledError as error:
            if asyncio.current_task().cancelling():
                raise  # the pass ends
            await self._failed(event["id"], event["revision"], error)
        except Exception as error:
            await self._failed(event["id"], event["revision"], error)
        await self.ctx.storage.sync()

    async def _succeeded(self, id: str, revision: int, planned_ms: int) -> None:
        now = await self.getEvent(id)
        if now is None or now["revision"] != revision:
            return  # cancelled, or scheduled anew, while it ran: that holds
        if now["repeatMs"] is None and now["cron"] is None:
            await self._replace(now, None)
            return
        if now["cron"] is not None:
            run_at, missed = next_run_by_cron(
                now["cron"], now["zone"], planned_ms, self.ctx.now_ms()
            )
        else:
            run_at, missed = next_run(planned_ms, now["repeatMs"], self.ctx.now_ms())
        counted = {"runs": now["runs"] + 1, "missed": now["missed"] + missed, "attempts": 0}
        await self._replace(now, now | counted | {"runAt": run_at, "lookAt": run_at})

    async def _failed(self, id: str, revision: int, error: BaseException) -> None:
        logger.warning("event %s of %s failed: %r", id, self.ctx.id, error)
        now = await self.getEvent(id)
        if now is None or now["revision"] != revision:
            return
        attempts = now["attempts"] + 1
        again_ms = next_attempt_at_ms(attempts, self.ctx.now_ms(), random())
        counted = {"attempts": attempts, "parked": again_ms is None, "lookAt": again_ms}
        await self._replace(now, now | counted)
        if again_ms is None:
            logger.error("event %s of %s is parked", id, self.ctx.id)

    async def _replace(self, before: Event | None, after: Event | None) -> None:
        """Puts an event, with its place in the order, in another's stead; or deletes it."""
        storage = self.ctx.storage
        new = (
            {} if after is None else {f"event:{after['id']}": after, _place_of(after): after["id"]}
        )
        if new:
            storage.put(new)  # first, for it may be refused
        if before is not None:
            old = [f"event:{before['id']}", _place_of(before)]
            storage.delete([key for key in old if key not in new])
        if self._changed is not None:
            self._changed.set()

    async def _arm(self) -> None:
        """Sets the alarm to the earliest, or to none, unless a pass is on that will do so."""
        if self._changed is not None:
            return
        storage = self.ctx.storage
        first = await storage.list(prefix="due:", limit=1)
        at_ms = max(_due_ms(next(iter(first))), 1) if first else None
        if at_ms is None:
            if await storage.getAlarm() is not None:
                storage.deleteAlarm()
        else:
            current = await storage.getAlarm()
            overdue = current is not None and at_ms <= current <= self.ctx.now_ms()
            if at_ms != current and not overdue:
                storage.setAlarm(at_ms)


def _place_of(event: Event) -> str:
    if event["lookAt"] is None:
        return f"parked:{event['id']}"
    return _due_key(event["lookAt"], event["id"])


def _due_key(at_ms: int, id: str) -> str:
    return f"due:{at_ms:013d}:{id}"


def _due_ms(key: str) -> int:
    return int(key.split(":", 2)[1])
