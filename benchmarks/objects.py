"""Durable objects: calls that write, idle objects in memory, alarms due in one instant."""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.figures import Bar, Figure
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import resident_mb, scratch
from reservation_expiry.infrastructure.alarms.attempt import Attempt
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.host import ObjectHost
from reservation_expiry.infrastructure.startup import prepare

CALLERS = 16
LEAD_MS = 3_000


class Counter(DurableObject):
    """What is measured: a read, a write, and an alarm that writes."""

    async def add(self) -> int:
        count = (await self.ctx.storage.get("count") or 0) + 1
        self.ctx.storage.put("count", count)
        return count

    def arm(self, at_ms: int) -> None:
        self.ctx.storage.setAlarm(at_ms)

    async def alarm(self) -> None:
        await self.add()


COUNTER = {"Counter": Counter}


def objects(rounds: int, seconds: float, idle: int, due: int) -> Iterator[Figure]:
    """Everything durable: a call returns after its commit."""
    calls = Figure(f"object calls that write, {CALLERS} callers of one", "1/s")
    calls.bar = Bar(1_500, None, "ours")
    for _ in range(rounds):
        calls.ours.append(asyncio.run(_calls_per_second(seconds)))
    yield calls
    bar = Bar(40, None, "ours", low=True)
    memory = asyncio.run(_memory_mb(idle))
    yield Figure(f"memory of {idle:,} idle objects", "MB", [memory], bar=bar)
    figure = Figure(f"the last of {due} objects' alarms due in one ms", "ms")
    figure.bar = Bar(1_000, None, "ours", low=True)
    for _ in range(rounds):
        figure.ours.append(asyncio.run(_last_of_ms(due)))
    yield figure


@asynccontextmanager
async def hosting(
    folder: Path, classes: dict[str, type], **options: float
) -> Iterator[tuple[ObjectHost, list[Attempt]]]:
    path = folder / "objects.db"
    prepare(path)
    application = ReservationApplication(path)
    attempts: list[Attempt] = []
    application.alarm_dispatcher.report = attempts.extend
    host = ObjectHost(application, classes, **options)
    application.start()
    await host.start()
    try:
        yield host, attempts
    finally:
        await host.stop()
        await asyncio.to_thread(application.stop)


async def _calls_per_second(seconds: float) -> float:
    with scratch() as folder:
        async with hosting(folder, COUNTER) as (host, _):
            stub = host.namespace("Counter").getByName("one")
            made, ends = 0, time.perf_counter() + seconds

            async def caller() -> None:
                nonlocal made
                while time.perf_counter() < ends:
                    await stub.add()
                    made += 1

            await asyncio.gather(*(caller() for _ in range(CALLERS)))
            if await stub.add() != made + 1:
                raise WrongAnswer("calls were lost or doubled")
            return made / seconds


async def _memory_mb(count: int) -> float:
    with scratch() as folder:
        async with hosting(folder, COUNTER, idle_seconds=600) as (host, _):
            await _each(host, 50, lambda stub: stub.add())
            gc.collect()
            before = resident_mb("self")
            await _each(host, count, lambda stub: stub.add())
            gc.collect()
            return resident_mb("self") - before


async def _last_of_ms(count: int) -> float:
    """How late the last was, its objects out of memory when their alarms came due."""
    with scratch() as folder:
        due_ms = int(time.time() * 1000) + LEAD_MS
        async with hosting(folder, COUNTER) as (host, _):
            await _each(host, count, lambda stub: stub.arm(due_ms))
        async with hosting(folder, COUNTER) as (_, attempts):
            while len(attempts) < count:
                await asyncio.sleep(0.01)
                if time.time() * 1000 > due_ms + 60_000:
                    raise WrongAnswer(f"{len(attempts)} of {count} alarms ran within a minute")
        late = [attempt.at_ms - due_ms for attempt in attempts]
        if min(late) < 0 or any(attempt.outcome != "ok" for attempt in attempts):
            raise WrongAnswer("an alarm rang early, or failed")
        return max(late)


async def _each(host: ObjectHost, count: int, call) -> None:
    names = iter(range(count))

    async def caller() -> None:
        for number in names:
            await call(host.namespace("Counter").getByName(f"o{number}"))

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
