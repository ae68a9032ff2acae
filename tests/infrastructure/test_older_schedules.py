"""Schedules of a log that the first release wrote: they go on as they were.

`older_logs/schedules.jsonl` was exported by that release, at 7.5 minutes after START: `tick`
every minute (five runs, two missed), `report` by cron, `later` once in ten hours, `lost` and
`weekly` parked, `shaky` every hour and in its third retry, `ran` and `gone` over.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from reservation_expiry.infrastructure.replay.backup import import_log
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.logs import verified
from tests.support.objects import World
from tests.support.schedules import START, facts, go_on

LOG = Path(__file__).parent / "older_logs" / "schedules.jsonl"
HOUR, MINUTE = 3_600_000, 60_000
EXPORTED = 450_000


@pytest.fixture
def world(new_address: Any) -> Any:
    """Makes a process on a database with that log, at the time when it was exported."""
    address = new_address()
    import_log(str(LOG), address, lambda events: None)
    return lambda: World(address, EventSchedule, clock=ManualClock(START + EXPORTED)), address


def told(world: Any, steps: Any) -> Address:
    make, address = world

    async def run() -> None:
        async with make() as process:
            await steps(process, process.stub("EventSchedule", "agent"))

    asyncio.run(run())
    assert verified(address).differences == []
    return address


def test_they_are_shown_as_they_were_with_what_is_new_at_its_beginning(world: Any) -> None:
    async def steps(process: World, agenda: Any) -> None:
        events = {event["id"]: event for event in await agenda.listEvents()}
        assert events.keys() == {"tick", "report", "later", "lost", "weekly", "shaky"}
        assert events["tick"] == {
            "id": "tick",
            "runAt": START + 8 * MINUTE,
            "lookAt": START + 8 * MINUTE,
            "repeatMs": MINUTE,
            "cron": None,
            "zone": None,
            "payload": {"n": 1},
            "runs": 5,
            "missed": 2,
            "gaveUp": 0,
            "attempts": 0,
            "parked": False,
            "nextProblem": None,
            "revision": 1,
        }
        assert [event["id"] for event in await agenda.listParked()] == ["lost", "weekly"]
        assert (events["shaky"]["attempts"], events["shaky"]["parked"]) == (3, False)

    told(world, steps)


def test_they_run_on_and_are_re_driven(world: Any) -> None:
    async def steps(process: World, agenda: Any) -> None:
        await go_on(process, 10 * MINUTE)
        tick = await agenda.getEvent("tick")
        assert (tick["runs"], tick["missed"], tick["runAt"]) == (8, 2, START + 11 * MINUTE)
        shaky = await agenda.getEvent("shaky")
        assert (shaky["runs"], shaky["attempts"]) == (1, 0)
        assert shaky["runAt"] == START + 440_000 + HOUR
        for name in ("lost", "weekly"):
            assert await agenda.redriveEvent(name)
        await process.ring()
        assert await agenda.getEvent("lost") is None
        weekly = await agenda.getEvent("weekly")
        assert (weekly["runs"], weekly["runAt"]) == (1, START + 1_000 + 7 * 24 * HOUR)

    address = told(world, steps)
    ends = {f["event_id"]: f["attempt"] for f in facts(address, "schedule.RunEnded")}
    assert ends == {"tick": 1, "shaky": 4, "lost": 1, "weekly": 1}


def test_they_are_cancelled_and_put_anew(world: Any) -> None:
    async def steps(process: World, agenda: Any) -> None:
        assert await agenda.cancelEvent("later")
        again = await agenda.scheduleEvent("tick", START + HOUR)
        assert (again["runs"], again["repeatMs"]) == (0, None)
        await go_on(process, HOUR)
        assert await agenda.getEvent("tick") is None

    told(world, steps)


SAME: dict[str, tuple[str, dict[str, Any], bool]] = {
    "as it was put": ("tick", {"runAt": START + MINUTE, "repeatMs": MINUTE}, True),
    "by a later time of its own": ("tick", {"runAt": START + 8 * MINUTE, "repeatMs": MINUTE}, True),
    "out of step": ("tick", {"runAt": START + 90_000, "repeatMs": MINUTE}, False),
    "in the future": ("tick", {"runAt": START + 20 * MINUTE, "repeatMs": MINUTE}, False),
    "by its expression": ("report", {"cron": "0 9 * * *", "zone": "Europe/Brussels"}, True),
    "once": ("later", {"runAt": START + 10 * HOUR}, True),
}


@pytest.mark.parametrize("case", SAME)
def test_f39_the_same_put_changes_nothing(case: str, world: Any) -> None:
    name, put, is_same = SAME[case]
    payloads = {"tick": {"n": 1}, "report": None, "later": "once"}

    async def steps(process: World, agenda: Any) -> None:
        before = await agenda.getEvent(name)
        event = await agenda.scheduleEvent(name, **put, payload=payloads[name])
        assert (event == before) == is_same

    told(world, steps)
