"""Putting an event again: the same changes nothing, anything else is a new definition."""

from typing import Any

import pytest

from reservation_expiry.infrastructure.stores.address import Address
from tests.support.database import sql
from tests.support.objects import World
from tests.support.schedules import START, Agenda, fail, go_on, run_ends, story

HOUR = 3_600_000


def positions(address: Address) -> int:
    return sql(address, "SELECT count(*) FROM events")[0][0]


def test_f39_the_same_put_four_times_is_one_run_and_writes_nothing(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        put = {"runAt": START - 10 * HOUR, "repeatMs": HOUR, "payload": {"a": [1, True]}}
        for number in range(4):
            before = positions(address)
            event = await agenda.scheduleEvent("poll", **put)
            if number:
                assert positions(address) == before
                assert (event["runs"], event["missed"], event["revision"]) == (1, 10, 1)
            await world.ring()

    assert story(address, steps) == [("poll", 0)]


def test_f39_the_same_cron_put_while_its_run_is_overdue_leaves_it_overdue(
    address: Address,
) -> None:
    async def steps(world: World, agenda: Any) -> None:
        put = {"cron": "30 8 * * *", "payload": "x"}
        first = await agenda.scheduleEvent("report", **put)
        world.clock.advance(HOUR)
        assert await agenda.scheduleEvent("report", **put) == first
        await world.ring()

    assert story(address, steps) == [("report", HOUR)]


def test_f39_the_same_put_while_it_is_retried_keeps_the_retry(database_path: Any) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("poll", START, HOUR, "fails")
        await world.ring()
        before = await agenda.getEvent("poll")
        assert await agenda.scheduleEvent("poll", START, HOUR, "fails") == before
        assert before["attempts"] == 1

    story(database_path, steps, fails=fail)


def test_f39_a_parked_event_stays_parked(database_path: Any) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("once", START, None, "fails")
        await go_on(world, 200_000)
        event = await agenda.scheduleEvent("once", START, None, "fails")
        assert (event["parked"], event["attempts"], event["revision"]) == (True, 7, 1)

    assert len(story(database_path, steps, fails=fail)) == 7


def test_f39_the_order_of_a_payloads_keys_is_no_difference(database_path: Any) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("e", START + 1, None, {"a": 1, "b": {"c": 2, "d": 3}})
        again = await agenda.scheduleEvent("e", START + 1, None, {"b": {"d": 3, "c": 2}, "a": 1})
        assert again["revision"] == 1

    story(database_path, steps)


BASE = {"runAt": START + HOUR, "repeatMs": HOUR, "payload": 1}
CHANGES: dict[str, dict[str, Any]] = {
    "another time": {"runAt": START + 2 * HOUR},
    "another period": {"repeatMs": 2 * HOUR},
    "once": {"repeatMs": None},
    "another payload": {"payload": 2},
    "true for 1": {"payload": True},
    "1.0 for 1": {"payload": 1.0},
    "none": {"payload": None},
    "an expression": {"runAt": None, "repeatMs": None, "cron": "0 * * * *"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_f39_what_is_different_is_put_anew(change: str, database_path: Any) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("e", **BASE)
        await go_on(world, HOUR)
        assert (await agenda.getEvent("e"))["runs"] == 1
        event = await agenda.scheduleEvent("e", **(BASE | CHANGES[change]))
        assert (event["revision"], event["runs"]) == (2, 0)
        assert event == await agenda.getEvent("e")

    story(database_path, steps)


def test_f39_another_zone_of_the_same_expression_is_a_difference(database_path: Any) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("e", cron="0 9 * * *", zone="UTC")
        event = await agenda.scheduleEvent("e", cron="0 9 * * *", zone="Asia/Tokyo")
        assert event["revision"] == 2

    story(database_path, steps)


def test_f39_putting_itself_the_same_in_its_own_run_is_no_second_run(database_path: Any) -> None:
    async def again(agenda: Agenda) -> None:
        await agenda.scheduleEvent("self", START, None, "again")

    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("self", START, None, "again")
        await go_on(world, 60_000)
        assert await agenda.getEvent("self") is None

    assert len(story(database_path, steps, again=again)) == 1
    assert [end[-1] for end in run_ends(database_path)] == ["ok"]
