"""A schedule whose events do what their payloads say, on a manual clock."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, ClassVar

from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.database import sql
from tests.support.objects import World

START = 1_800_000_000_000  # 2027-01-15T08:00Z


class Agenda(EventSchedule):
    """Notes what ran when; the text at the beginning of a payload names what it does."""

    runs: ClassVar[list[tuple[str, int]]] = []
    does: ClassVar[dict[str, Callable[["Agenda"], Any]]] = {}

    async def processEvent(self, event: dict[str, Any]) -> None:
        self.runs.append((event["id"], self.ctx.now_ms() - START))
        act = self.does.get(str(event["payload"])[:20])
        if act is not None:
            result = act(self)
            if result is not None:
                await result

    async def alarm_at(self) -> int | None:
        at_ms = await self.ctx.storage.getAlarm()
        return None if at_ms is None else at_ms - START


def fail(agenda: Agenda) -> None:
    raise RuntimeError("on purpose")


def story(
    address: Address, steps: Callable[[World, Any], Any], **does: Any
) -> list[tuple[str, int]]:
    """Runs `steps(world, agenda)` in one process. What ran."""
    Agenda.runs, Agenda.does = [], does

    async def run() -> None:
        async with World(address, Agenda) as world:
            await steps(world, world.stub("Agenda"))

    asyncio.run(run())
    return Agenda.runs


async def go_on(world: World, until_ms: int) -> None:
    """Lets the clock go by, from alarm to alarm."""
    while True:
        await world.ring()
        scope = world.application.alarm_dispatcher.scope
        due = world.application.queries.next_look(scope, world.clock.now_ms())
        if due is None or due * 1000 > START + until_ms:
            break
        world.clock.move_to(max(round(due * 1000), world.clock.now_ms()))
    world.clock.move_to(START + until_ms)


def facts(address: Address, *topics: str) -> list[dict[str, Any]]:
    """What the log says of these, in order."""
    marks = ", ".join("?" * len(topics))
    select = f"SELECT topic, state FROM events WHERE topic IN ({marks}) ORDER BY position"
    rows = sql(address, select, *topics)
    return [{"topic": topic} | json.loads(bytes(state)) for topic, state in rows]


def run_ends(address: Address) -> list[tuple[str, int, int, str]]:
    """(event, planned, attempt, outcome) of each run that ended."""
    found = facts(address, "schedule.RunEnded")
    return [(f["event_id"], f["planned_at_ms"] - START, f["attempt"], f["outcome"]) for f in found]
