"""Running objects' alarms: one at a time for each object, by the rules of `domain/alarm.py`.

The alarm clock claims them with all others and hands them over here; they run on the
host's event loop, each with its claim renewed until it has ended.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Protocol

from reservation_expiry.domain.ids import ObjectId, object_of, objects_of
from reservation_expiry.infrastructure.alarms.attempt import Attempt, Claim
from reservation_expiry.infrastructure.alarms.claims import Claimed, FailAlarms, GiveBackAlarms
from reservation_expiry.infrastructure.alarms.company import Crowd
from reservation_expiry.infrastructure.alarms.dispatcher import AlarmDispatcher
from reservation_expiry.infrastructure.errors import ROW_ERRORS, StoreError, StoreStopped
from reservation_expiry.infrastructure.objects.alarm_crowd import AlarmCrowd
from reservation_expiry.infrastructure.objects.durable_object import AlarmInfo
from reservation_expiry.infrastructure.objects.live_object import LiveObject
from reservation_expiry.infrastructure.objects.object_commands import SlowDownAlarm
from reservation_expiry.infrastructure.objects.running_code import guarded
from reservation_expiry.infrastructure.objects.tasks import HandlerTimeout
from reservation_expiry.infrastructure.unit_of_work import Work

HANDLER_LIMIT_SECONDS = 15 * 60.0
MAX_RUNNING = 1_000  # alarms under way, beyond which no more are claimed
YIELD_MS = 50
BUSY_AGAIN_MS = 1_000  # when to look again at the alarm of an object that is elsewhere

logger = logging.getLogger(__name__)


class NoHandler(Exception):
    """The class has no alarm() any more."""


class Objects(Protocol):
    """The objects of a process, for their alarms (`ObjectHost`)."""

    token: str
    accepting: bool
    classes: Mapping[str, type]
    loop: asyncio.AbstractEventLoop

    def now_ms(self) -> int: ...
    def wake_for(self, at_ms: int) -> None: ...
    def should_yield(self, object_id: str) -> bool: ...
    def park(self, object_ids: list[str]) -> None: ...
    async def execute(self, work: Work) -> Any: ...
    async def using(self, identity: ObjectId, use: Callable[[LiveObject], Any]) -> Any: ...


class ObjectAlarmRunner:
    """`take(claims)` from any thread; the rest is the loop's."""

    def __init__(self, host: Objects, dispatcher: AlarmDispatcher, limit_seconds: float) -> None:
        self._host = host
        self._dispatcher = dispatcher
        self._limit_seconds = limit_seconds
        self._running: dict[asyncio.Task[None], Claim] = {}
        self._renewed: dict[str, Claim] = {}
        self._crowd = AlarmCrowd()
        self._giving_back: asyncio.Task[None] | None = None
        self._reports = ThreadPoolExecutor(1, "alarm-report")

    @property
    def owner(self) -> str:
        return self._host.token

    @property
    def running(self) -> int:
        return len(self._running)

    def prefixes(self) -> tuple[str, ...]:
        """What the ids of alarms begin with that are run here."""
        if self.running >= MAX_RUNNING or not self._host.accepting or not self._crowd.is_open:
            return ()
        return tuple(objects_of(name) for name in self._host.classes)

    def crowd(self) -> tuple[Crowd, Sequence[Claim]]:
        return self._crowd.look()

    def expect(self, claimed: Claimed) -> None:
        self._crowd.expect(claimed)
        if claimed.joined:
            self._host.loop.call_soon_threadsafe(self._note, claimed.joined)

    def _note(self, claims: list[Claim]) -> None:
        """Their rows say something else than when they were begun."""
        self._renewed |= {claim.id: claim for claim in claims if self._runs(claim)}

    def claims(self) -> list[Claim]:
        return [self._newest(claim) for claim in self._running.values()]

    def take(self, claims: list[Claim]) -> None:
        if not claims:
            return
        try:
            self._host.loop.call_soon_threadsafe(self.start, claims)
        except RuntimeError:  # the loop has ended, and the process is about to
            self._dispatcher.give_back(claims)

    def parked(self, alarm_ids: list[str]) -> None:
        self._host.loop.call_soon_threadsafe(self._host.park, alarm_ids)

    def start(self, claims: list[Claim]) -> None:
        """Runs them, each in its object's turn; gives them back if the host is stopping."""
        if not self._host.accepting:
            self._giving_back = self._host.loop.create_task(self._give_back(claims, after_ms=0))
            return
        for claim in claims:
            # One that runs here already was claimed once more because a handler that held up
            # the loop kept its lease from being renewed.
            if claim.cut_off and self._runs(claim):
                self._renewed[claim.id] = claim
                continue
            task = self._host.loop.create_task(self._run(claim))
            self._running[task] = claim
            self._crowd.began(task, claim)
            task.add_done_callback(self._ended)

    def _runs(self, claim: Claim) -> bool:
        """Whether it is an alarm that runs here."""
        return any(
            running.id == claim.id and running.slot.scheduled_time == claim.slot.scheduled_time
            for running in self._running.values()
        )

    def _newest(self, claim: Claim) -> Claim:
        """The claim as it stands in the row, with the attempts that were really made."""
        newer = self._renewed.get(claim.id)
        if newer is None or newer.slot.scheduled_time != claim.slot.scheduled_time:
            return claim
        slot = newer.slot._replace(attempts=claim.slot.attempts)
        return Claim(claim.id, slot, newer.job_state)

    def _ended(self, task: asyncio.Task[None]) -> None:
        claim = self._running.pop(task)
        self._renewed.pop(claim.id, None)
        if self._crowd.ended(task):
            self._host.wake_for(0)
        if not task.cancelled() and task.exception() is not None:
            logger.error("an alarm could not be run", exc_info=task.exception())

    async def stop(self) -> None:
        """Cancels what still runs; the claims are given back, to be run again at once."""
        running = dict(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
            await self._give_back([self._newest(c) for c in running.values()], after_ms=0)
        self._reports.shutdown()

    async def _run(self, claim: Claim) -> None:
        if self._host.should_yield(claim.id):
            await self._give_back([claim], YIELD_MS)  # to whoever has the object by then
            return
        began_at_ms = self._host.now_ms()
        attempt: Attempt | None
        try:
            attempt = await self._host.using(
                object_of(claim.id), lambda live: self._in_turn(live, claim)
            )
        except ROW_ERRORS as error:
            logger.error("%s cannot be read for its alarm: %s", claim.id, error)
            attempt = await self._fail(claim, error, None)
        except StoreError as error:
            logger.warning("the alarm of %s waits: %s", claim.id, error)
            await self._give_back([self._newest(claim)], BUSY_AGAIN_MS)
            return
        except Exception as error:  # the class's constructor raised it
            logger.error("%s could not be made for its alarm", claim.id, exc_info=error)
            attempt = await self._fail(claim, error, began_at_ms)
        if attempt is not None:
            await self._host.loop.run_in_executor(self._reports, self._dispatcher.report, [attempt])

    async def _in_turn(self, live: LiveObject, claim: Claim) -> Attempt | None:
        async with live.alarm_turn:
            await live.tasks.ready()
            if not live.memory.begin_alarm(claim):
                return None  # it was set anew, or deleted, since it was claimed
            began_at_ms = self._host.now_ms()
            try:
                await self._handle(live, claim)
            except asyncio.CancelledError:
                live.memory.end_alarm(well=False)
                raise
            except Exception as error:
                return await self._failed(live, claim, error, began_at_ms)
            live.memory.end_alarm(well=live.dropped is None)
            live.refuse_if_dropped()
            attempt = Attempt(claim, "ok", self._host.now_ms(), began_at_ms=began_at_ms)
            live.memory.keep_attempt(attempt.facts)
            await live.durable()
            return attempt

    async def _handle(self, live: LiveObject, claim: Claim) -> None:
        method = guarded(getattr, live.instance, "alarm", None)
        if not callable(method):
            raise NoHandler(f"{live.identity.class_name} has no alarm()")
        info = AlarmInfo(claim.slot.scheduled_time, claim.retry_count)
        await live.run_limited(_handler(method, info), self._limit_seconds)

    async def _fail(self, claim: Claim, error: Exception, began_at_ms: int | None) -> Attempt:
        attempts: list[Attempt] = await self._host.execute(
            FailAlarms([(self._newest(claim), error)], began_at_ms)
        )
        return attempts[0]

    async def _failed(
        self, live: LiveObject, claim: Claim, error: Exception, began_at_ms: int
    ) -> Attempt:
        untouched = live.memory.end_alarm(well=False)
        if not isinstance(error, StoreError | HandlerTimeout | NoHandler):
            logger.error("the alarm of %s failed", claim.id, exc_info=error)
        if isinstance(error, StoreStopped) or (live.dropped and isinstance(error, StoreError)):
            raise error
        if not untouched:
            next_at_ms = live.memory.stored.alarm_at_ms
            slowed: Attempt = await self._host.execute(
                SlowDownAlarm(claim, next_at_ms, error, began_at_ms)
            )
            return slowed
        attempt = await self._fail(claim, error, began_at_ms)
        if attempt.outcome == "parked":
            live.memory.park_alarm()
        return attempt

    async def _give_back(self, claims: list[Claim], after_ms: int) -> None:
        try:
            await self._host.execute(GiveBackAlarms(claims, after_ms))
        except StoreError as error:
            logger.warning("%d alarms wait for their leases to end: %s", len(claims), error)


def _handler(method: Callable[..., Any], info: AlarmInfo) -> Callable[[], Any]:
    """The call of alarm(alarm_info), or of alarm() where it is declared so."""
    return (lambda: method(info)) if _takes_info(method) else method


def _takes_info(method: Callable[..., Any]) -> bool:
    function = getattr(method, "__func__", None)
    return _binds.__wrapped__(method, 1) if function is None else _binds(function, 2)


@lru_cache(maxsize=1_000)  # looking takes longer than running a short handler
def _binds(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    return True
