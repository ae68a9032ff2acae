"""Schedules: puts and passes with few and many events, many due at once, and no drift."""

import asyncio
import time
from collections.abc import Iterator

from benchmarks.figures import Bar, Figure
from benchmarks.objects import CALLERS, hosting
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import scratch
from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule

FAR_MS = 3_600_000
PUTS = 300
DUE = 20
TICK_MS = 500
LEAD_MS = 6_000


class Agenda(EventSchedule):
    """Notes what ran, when it was planned and when it did."""

    ran: list[tuple[str, int, float]]

    async def processEvent(self, event):
        if event["payload"] == "slow":
            await asyncio.sleep(1)
        if event["payload"] == "fails":
            raise RuntimeError("on purpose")
        Agenda.ran.append((event["id"], event["runAt"], time.time() * 1000))


def schedules(sizes: tuple[int, ...], many: int, seconds: int) -> Iterator[Figure]:
    for size in sizes:
        p99, last = asyncio.run(_one_schedule(size))
        yield Figure(f"put of an event beside {size:,} others, p99", "ms", [p99])
        yield Figure(f"  the last of {DUE} due in one ms there", "ms", [last])
    last = asyncio.run(_many_schedules(many))
    figure = Figure(
        f"{many:,} schedules due within a second, the last after the first", "ms", [last]
    )
    figure.bar = Bar(2_000, None, "ours", low=True)
    yield figure
    late = asyncio.run(_ticks(seconds))
    what = f"an event every {TICK_MS} ms for {seconds} s beside a slow and a failing one"
    yield Figure(f"{what}, lateness p99", "ms", [late[int(0.99 * len(late))]])


async def _one_schedule(size: int) -> tuple[float, float]:
    """(p99 of a put, how late the last of DUE events ran), in ms."""
    with scratch() as folder:
        async with hosting(folder, {"Agenda": Agenda}) as (host, _):
            agenda = host.namespace("Agenda").getByName("a")
            far = int(time.time() * 1000) + FAR_MS
            await _by_many(size, lambda i: agenda.scheduleEvent(f"e{i * 7919 % size}", far + i))
            took = []
            for number in range(PUTS):
                began = time.perf_counter()
                await agenda.scheduleEvent(f"n{number}", far + number)
                took.append((time.perf_counter() - began) * 1000)
            due, Agenda.ran = int(time.time() * 1000) + 300, []
            for number in range(DUE):
                await agenda.scheduleEvent(f"n{number}", due)
            await _until_ran(DUE)
            return sorted(took)[int(0.99 * PUTS)], max(at for *_, at in Agenda.ran) - due


async def _many_schedules(count: int) -> float:
    with scratch() as folder:
        async with hosting(folder, {"Agenda": Agenda}) as (host, _):
            due, Agenda.ran = int(time.time() * 1000) + LEAD_MS, []
            space = host.namespace("Agenda")
            await _by_many(
                count, lambda i: space.getByName(f"s{i}").scheduleEvent("e", due + i * 999 // count)
            )
            if time.time() * 1000 > due:
                raise WrongAnswer("the events were due before they were made")
            await _until_ran(count)
            return max(at for *_, at in Agenda.ran) - due


async def _ticks(seconds: int) -> list[float]:
    """How late each run was. Raises WrongAnswer if one was not planned where it must be."""
    with scratch() as folder:
        async with hosting(folder, {"Agenda": Agenda}) as (host, _):
            agenda = host.namespace("Agenda").getByName("a")
            start, Agenda.ran = int(time.time() * 1000) + TICK_MS, []
            await agenda.scheduleEvent("slow", start, 1_500, "slow")
            await agenda.scheduleEvent("bad", start, None, "fails")
            await agenda.scheduleEvent("tick", start, TICK_MS)
            await asyncio.sleep(seconds + 1)
            ticks = [(planned, at) for id, planned, at in Agenda.ran if id == "tick"]
            right = [start + TICK_MS * number for number in range(len(ticks))]
            if [planned for planned, _ in ticks] != right:
                raise WrongAnswer("a run was planned for another time than start + k x period")
            return sorted(at - planned for planned, at in ticks)


async def _by_many(count: int, call) -> None:
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(caller() for _ in range(4 * CALLERS)))


async def _until_ran(count: int) -> None:
    deadline = time.monotonic() + 60
    while len(Agenda.ran) < count:
        await asyncio.sleep(0.005)
        if time.monotonic() > deadline:
            raise WrongAnswer(f"{len(Agenda.ran)} of {count} events ran within a minute")
