"""The alarm rules of durable objects, on a manual clock.

Sections and figures are those of the measurements of Cloudflare's runtime
(docs/alarms.md says where we differ); `Scripted` is told by each test what its alarm does.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from reservation_expiry.infrastructure.objects import host as host_module
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.tasks import HandlerTimeout
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.objects import World

START = 1_800_000_000_000
Run = tuple[int, int, bool, int]
"""(when the handler ran, retryCount, isRetry, scheduledTime), times from START"""


class Scripted(DurableObject):
    """Its alarm does what `script` says, in turn, then nothing."""

    script: ClassVar[list[Callable[["Scripted"], Any]]] = []
    runs: ClassVar[list[Run]] = []

    async def alarm(self, alarm_info):
        self.runs.append(
            (
                self.now - START,
                alarm_info.retryCount,
                alarm_info["isRetry"],
                alarm_info.get("scheduledTime") - START,
            )
        )
        if self.script:
            result = self.script.pop(0)(self)
            if result is not None:
                await result

    @property
    def now(self) -> int:
        return self.env.world.clock.now_ms()

    def set(self, at_ms: int) -> None:
        self.ctx.storage.setAlarm(START + at_ms)

    def set_and_raise(self, at_ms: int) -> None:
        self.set(at_ms)
        fail(self)

    async def wait(self) -> None:
        await self.env.world.go.wait()

    async def get(self) -> int | None:
        at_ms = await self.ctx.storage.getAlarm()
        return None if at_ms is None else at_ms - START

    def unset(self) -> None:
        self.ctx.storage.deleteAlarm()

    def empty(self) -> None:
        self.ctx.storage.deleteAll()

    async def kept(self) -> dict[str, Any]:
        return await self.ctx.storage.list()


def fail(me: Scripted) -> None:
    raise RuntimeError("on purpose")


def set_and_fail(at_ms: int) -> Callable[[Scripted], None]:
    def step(me: Scripted) -> None:
        me.set(at_ms)
        fail(me)

    return step


def unset_and_fail(me: Scripted) -> None:
    me.unset()
    fail(me)


@pytest.fixture
def script() -> list[Callable[[Scripted], Any]]:
    Scripted.script, Scripted.runs = [], []
    return Scripted.script


async def play(
    address: Address, script: list[Any], steps: list[Callable[[World, Any], Any]]
) -> list[Run]:
    """Does the steps in turn. A number lets the clock go on to that time, ms by due ms."""
    async with World(address, Scripted) as world:
        stub = world.stub("Scripted")
        for step in steps:
            if isinstance(step, int):
                await let_pass(world, START + step)
            else:
                result = step(stub)
                if result is not None:
                    await result
    return Scripted.runs


async def let_pass(world: World, until_ms: int) -> None:
    """Moves the clock from one due time to the next, as a real one would come by them."""
    while True:
        await world.ring()
        scope = world.application.alarm_dispatcher.scope
        due = world.application.queries.next_look(scope, world.clock.now_ms())
        if due is None or due * 1000 > until_ms:
            break
        world.clock.move_to(max(round(due * 1000), world.clock.now_ms()))
    world.clock.move_to(until_ms)


def played(address: Address, script: list[Any], *steps: Any) -> list[Run]:
    return asyncio.run(play(address, script, list(steps)))


def sees(at_ms: int | None) -> Callable[[Any], Any]:
    """getAlarm() from a request answers this."""

    async def step(stub: Any) -> None:
        assert await stub.get() == at_ms

    return step


# Section 1: an alarm that always fails.


def test_a_failing_alarm_is_tried_seven_times_later_and_later_then_parked(
    address: Address, script: list[Any]
) -> None:
    script += [fail] * 9
    runs = played(address, script, lambda s: s.set(1_000), 300_000, sees(None))
    assert [run[1:] for run in runs] == [(n, n > 0, 1_000) for n in range(7)]
    waits = [b[0] - a[0] for a, b in pairwise(runs)]
    for wait, delay in zip(waits, (2_000, 4_000, 8_000, 16_000, 32_000, 64_000), strict=True):
        assert delay <= wait <= 1.25 * delay + 1


def test_after_giving_up_a_new_alarm_has_a_fresh_count(address: Address, script: list[Any]) -> None:
    script += [fail] * 7
    runs = played(
        address, script, lambda s: s.set(1_000), 300_000, lambda s: s.set(300_500), 301_000
    )
    assert runs[7:] == [(300_500, 0, False, 300_500)]


def test_a_parked_alarm_is_listed_and_can_be_run_again(address: Address, script: list[Any]) -> None:
    async def story() -> None:
        script.extend([fail] * 7)
        async with World(address, Scripted) as world:
            await world.stub("Scripted").set(0)
            await let_pass(world, START + 300_000)
            assert world.application.queries.parked(10) == ["object/Scripted/foo"]
            assert [a.outcome for a in world.attempts] == ["retry"] * 6 + ["parked"]
            assert await asyncio.to_thread(world.application.redrive, "Scripted/foo")
            await world.ring()
        assert Scripted.runs[-1] == (300_000, 0, False, 0)

    asyncio.run(story())


@pytest.mark.parametrize("thrown", [RuntimeError("x"), ValueError(), KeyError("k")], ids=repr)
def test_whatever_is_raised_counts(address: Address, script: list[Any], thrown: Any) -> None:
    def step(me: Scripted) -> None:
        raise thrown

    script.append(step)
    assert len(played(address, script, lambda s: s.set(0), 3_000)) == 2


def test_what_a_handler_returns_or_leaves_failing_beside_it_does_not_count(
    address: Address, script: list[Any]
) -> None:
    async def failing() -> None:
        raise RuntimeError("beside")

    script += [lambda me: me.ctx.waitUntil(failing())]
    assert len(played(address, script, lambda s: s.set(0), 10_000)) == 1


class Unmade(DurableObject):
    broken = False
    entered = 0

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        if Unmade.broken:
            raise RuntimeError("cannot be made")

    def set(self, at_ms: int) -> None:
        self.ctx.storage.setAlarm(at_ms)

    def alarm(self) -> None:
        Unmade.entered += 1


def test_a_constructor_that_fails_counts_as_an_attempt_and_is_retried(
    address: Address,
) -> None:
    async def story() -> None:
        Unmade.broken, Unmade.entered = False, 0
        async with World(address, Unmade) as world:
            await world.stub("Unmade").set(START + 1)
        Unmade.broken = True
        async with World(address, Unmade) as world:
            await world.advance(10)
            assert [a.outcome for a in world.attempts] == ["retry"]
            with pytest.raises(RuntimeError, match="cannot be made"):
                await world.stub("Unmade").set(1)
            Unmade.broken = False
            await world.advance(3_000)
        assert Unmade.entered == 1

    asyncio.run(story())


# Section 2: what the handler is told.


def test_the_alarm_info_is_a_mapping_with_attributes(address: Address, script: list[Any]) -> None:
    told: list[Any] = []

    class Told(DurableObject):
        def set(self) -> None:
            self.ctx.storage.set_alarm(START)

        def alarm(self, alarm_info: Any) -> None:
            told.append(alarm_info)

    async def story() -> None:
        async with World(address, Told) as world:
            await world.stub("Told").set()
            await world.ring()

    asyncio.run(story())
    (info,) = told
    assert dict(info) == {"scheduledTime": START, "retryCount": 0, "isRetry": False}
    assert list(info) == ["scheduledTime", "retryCount", "isRetry"]
    assert (info.scheduledTime, info.retry_count, info.is_retry) == (START, 0, False)
    assert info.get("nothing", 7) == 7


# Section 3: the slot, around the handler.


def test_in_the_handler_and_beside_it_no_alarm_is_set_until_one_is(
    address: Address, script: list[Any]
) -> None:
    seen: list[Any] = []

    async def step(me: Scripted) -> None:
        seen.append(await me.get())
        seen.append(await me.env.world.stub("Scripted").get())  # a request meanwhile
        me.set(5_000)
        seen.append(await me.get())

    script.append(step)
    runs = played(address, script, lambda s: s.set(0), 0, sees(5_000), 6_000, sees(None))
    assert seen == [None, None, 5_000]
    assert [run[:2] for run in runs] == [(0, 0), (5_000, 0)]


def test_between_two_retries_the_alarm_is_still_the_original(
    address: Address, script: list[Any]
) -> None:
    script += [fail]
    played(address, script, lambda s: s.set(1_000), 1_500, sees(1_000), 4_000, sees(None))


STORIES: dict[str, tuple[list[Any], list[Any], list[Run]]] = {
    "an alarm set in a handler that fails is kept, and the failed one not retried": (
        [set_and_fail(9_000)],
        [lambda s: s.set(0), 20_000],
        [(0, 0, False, 0), (9_000, 0, False, 9_000)],
    ),
    "... at its own time, however soon that is": (
        [set_and_fail(1_500)],
        [lambda s: s.set(0), 20_000],
        [(0, 0, False, 0), (1_500, 0, False, 1_500)],
    ),
    "the count starts anew with an alarm that was set in between": (
        [fail, fail, set_and_fail(20_000), fail],
        [lambda s: s.set(0), 19_000, 60_000],
        [],  # compared by retry counts below
    ),
    "an alarm deleted in a handler that fails is not retried": (
        [unset_and_fail],
        [lambda s: s.set(0), 0, sees(None), 60_000],
        [(0, 0, False, 0)],
    ),
    "nor one that is set and deleted there": (
        [lambda me: (me.set(3_000), me.unset(), fail(me))],
        [lambda s: s.set(0), 0, sees(None), 60_000],
        [(0, 0, False, 0)],
    ),
    "deleting between two retries stops them": (
        [fail] * 3,
        [lambda s: s.set(0), 1_000, lambda s: s.unset(), sees(None), 60_000],
        [(0, 0, False, 0)],
    ),
    "a later alarm set between two retries takes their place": (
        [fail] * 1,
        [lambda s: s.set(0), 1_000, lambda s: s.set(21_000), 60_000],
        [(0, 0, False, 0), (21_000, 0, False, 21_000)],
    ),
    "F29: an earlier alarm set while a retry waits cuts the wait short": (
        [fail] * 1,
        [lambda s: s.set(0), 1_000, lambda s: s.set(1_300), 60_000],
        [(0, 0, False, 0), (1_300, 0, False, 1_300)],
    ),
    "of two alarms set in a row the last wins": (
        [],
        [lambda s: s.set(5_000), lambda s: s.set(3_000), 10_000],
        [(3_000, 0, False, 3_000)],
    ),
    "... in either order": (
        [],
        [lambda s: s.set(3_000), lambda s: s.set(5_000), 10_000],
        [(5_000, 0, False, 5_000)],
    ),
    "F28: an alarm set to the very ms of the one that runs fires": (
        [lambda me: me.set(0)],
        [lambda s: s.set(0), 1_000, sees(None)],
        [(0, 0, False, 0), (0, 0, False, 0)],
    ),
    "deleteAll deletes the alarm too": (
        [],
        [lambda s: s.set(1_000), lambda s: s.empty(), sees(None), 5_000],
        [],
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_that(story: str, address: Address, script: list[Any]) -> None:
    script_of, steps, expected = STORIES[story]
    script += script_of
    runs = played(address, script, *steps)
    if story.startswith("the count"):
        assert [run[1] for run in runs] == [0, 1, 2, 0, 1]
    else:
        assert runs == expected


def test_setting_and_failing_again_and_again_gets_slower(
    address: Address, script: list[Any]
) -> None:
    """The original runs such a handler without end and without a pause."""
    script += [lambda me: (me.set(me.now - START), fail(me))] * 5
    runs = played(address, script, lambda s: s.set(0), 60_000)
    assert [run[1] for run in runs] == [0] * 6
    waits = [b[0] - a[0] for a, b in pairwise(runs)]
    assert waits == [0, 2_000, 4_000, 8_000, 16_000]


async def wait_for_go(me: Scripted) -> None:
    await me.env.world.go.wait()


@pytest.mark.parametrize("fails", [False, True])
def test_an_alarm_set_by_a_request_while_the_handler_runs_runs_right_after_it(
    address: Address, script: list[Any], fails: bool
) -> None:
    """F27: nothing that is set meanwhile is lost."""

    async def step(me: Scripted) -> None:
        await wait_for_go(me)
        if fails:
            fail(me)

    async def story() -> None:
        script.append(step)
        async with World(address, Scripted) as world:
            world.go = asyncio.Event()
            stub = world.stub("Scripted")
            await stub.set(0)
            await world.look()
            await world.until(lambda: Scripted.runs)
            await stub.set(0)  # past, by the clock: now
            world.clock.advance(2_000)
            await world.look()  # claimed while the first still runs: never beside it
            await asyncio.sleep(0.01)
            assert len(Scripted.runs) == 1
            world.go.set()
            await world.ring()
            await let_pass(world, START + 60_000)
        assert [run[:2] for run in Scripted.runs] == [(0, 0), (2_000, 0)]

    asyncio.run(story())


def test_an_alarm_deleted_by_a_request_while_the_handler_runs_is_not_retried(
    address: Address, script: list[Any]
) -> None:
    async def step(me: Scripted) -> None:
        await wait_for_go(me)
        fail(me)

    async def story() -> None:
        script.append(step)
        async with World(address, Scripted) as world:
            world.go = asyncio.Event()
            await world.stub("Scripted").set(0)
            await world.look()
            await world.until(lambda: Scripted.runs)
            await world.stub("Scripted").unset()
            world.go.set()
            await world.settled()
            await let_pass(world, START + 60_000)
        assert len(Scripted.runs) == 1

    asyncio.run(story())


class Silent(DurableObject):
    def set(self) -> None:
        self.ctx.storage.setAlarm(START)


def test_a_class_without_a_handler_cannot_set_an_alarm(address: Address) -> None:
    async def story() -> None:
        async with World(address, Silent) as world:
            with pytest.raises(TypeError, match=r"Silent needs an alarm\(\)"):
                await world.stub("Silent").set()

    asyncio.run(story())


def test_an_alarm_whose_handler_was_deployed_away_is_retried_and_comes_back_with_it(
    address: Address, script: list[Any]
) -> None:
    Gone = type("Scripted", (DurableObject,), {})

    async def story() -> None:
        async with World(address, Scripted) as world:
            await world.stub("Scripted").set(0)
        async with World(address, Gone) as world:
            await world.ring()
            assert [a.outcome for a in world.attempts] == ["retry"]
        async with World(address, Scripted) as world:
            await world.advance(3_000)
        assert [run[1] for run in Scripted.runs] == [1]

    asyncio.run(story())


# Section 4: what setAlarm takes.

NOW = START
DAY_AFTER_ALL = 9_223_372_036_854


class Setting(DurableObject):
    def set(self) -> Any:
        self.ctx.storage.setAlarm(self.env.world.argument)
        return self.ctx.storage.getAlarm()

    def get(self) -> Any:
        return self.ctx.storage.getAlarm()

    def alarm(self) -> None: ...


@pytest.mark.parametrize(
    ("argument", "set_to"),
    [
        (NOW - 60_000, NOW),
        (1, NOW),
        (NOW, NOW),
        (NOW + 60_000.75, NOW + 60_000),
        (datetime.fromtimestamp((NOW + 5_000) / 1000, UTC), NOW + 5_000),
        (DAY_AFTER_ALL, DAY_AFTER_ALL),
    ],
)
def test_set_alarm_takes(argument: Any, set_to: int, address: Address) -> None:
    assert asyncio.run(setting(address, argument)) == set_to


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        *((bad, "after 1970") for bad in (0, -5, 0.5, -0.5)),
        *((float(bad), "a point in time") for bad in ("nan", "inf", "-inf")),
        *((bad, "2262") for bad in (DAY_AFTER_ALL + 1, 8.64e15, 10**18, 2**63)),
        *(
            (bad, "takes Unix milliseconds or a datetime")
            for bad in ("5", "2027-01-01", None, True, {}, [])
        ),
        (datetime(2027, 1, 1), "time zone"),
    ],
    ids=repr,
)
def test_set_alarm_refuses_and_leaves_the_earlier_alarm(
    argument: Any, sentence: str, address: Address
) -> None:
    async def story() -> None:
        async with World(address, Setting) as world:
            world.argument = NOW + 1
            await world.stub("Setting").set()
            world.argument = argument
            with pytest.raises(TypeError, match=sentence):
                await world.stub("Setting").set()
            assert await world.stub("Setting").get() == NOW + 1

    asyncio.run(story())


async def setting(address: Address, argument: Any) -> Any:
    async with World(address, Setting) as world:
        world.argument = argument
        return await world.stub("Setting").set()


# Section 6, and the time limit.


def test_requests_are_served_while_an_alarm_waits(address: Address, script: list[Any]) -> None:
    async def story() -> None:
        script.append(wait_for_go)
        async with World(address, Scripted) as world:
            world.go = asyncio.Event()
            await world.stub("Scripted").set(0)
            await world.look()
            await world.until(lambda: Scripted.runs)
            assert await world.stub("Scripted").get() is None
            assert world.host.alarms.running == 1
            world.go.set()
            await world.settled()

    asyncio.run(story())


def test_an_alarm_waits_for_block_concurrency_while(address: Address) -> None:
    order: list[str] = []

    class Blocking(DurableObject):
        def set(self) -> None:
            self.ctx.storage.setAlarm(START)

        async def block(self) -> None:
            async def work() -> None:
                order.append("begins")
                await self.env.world.go.wait()
                order.append("ends")

            self.ctx.blockConcurrencyWhile(work)

        def alarm(self) -> None:
            order.append("alarm")

    async def story() -> None:
        async with World(address, Blocking) as world:
            world.go = asyncio.Event()
            await world.stub("Blocking").set()
            await world.stub("Blocking").block()
            await world.look()
            await asyncio.sleep(0.02)
            world.go.set()
            await world.settled()

    asyncio.run(story())
    assert order == ["begins", "ends", "alarm"]


def test_an_alarm_runs_on_time_while_a_request_waits(address: Address, script: list[Any]) -> None:
    async def story() -> None:
        async with World(address, Scripted) as world:
            world.go = asyncio.Event()
            stub = world.stub("Scripted")
            await stub.set(5)
            waiting = stub.wait()
            await world.advance(5)
            assert [run[0] for run in Scripted.runs] == [5]
            world.go.set()
            await waiting

    asyncio.run(story())


def test_an_alarm_set_by_a_request_that_raises_is_kept(address: Address, script: list[Any]) -> None:
    async def raising(stub: Any) -> None:
        with pytest.raises(RuntimeError):
            await stub.set_and_raise(3_000)

    runs = played(address, script, raising, 5_000)
    assert runs == [(3_000, 0, False, 3_000)]


def test_a_class_without_a_handler_cannot_set_one_in_its_constructor_either(
    address: Address,
) -> None:
    class Early(DurableObject):
        def __init__(self, ctx: Any, env: Any) -> None:
            super().__init__(ctx, env)
            ctx.storage.setAlarm(START)

    async def story() -> None:
        async with World(address, Early) as world:
            with pytest.raises(TypeError, match=r"Early needs an alarm\(\)"):
                await world.stub("Early").fetch("http://x/")

    asyncio.run(story())


def test_a_handler_that_does_not_end_when_the_process_stops_is_given_back_uncounted(
    address: Address, script: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "STOP_SECONDS", 0.02)

    async def story() -> None:
        script.append(wait_for_go)
        async with World(address, Scripted) as world:
            world.go = asyncio.Event()
            await world.stub("Scripted").set(0)
            await world.look()
            await world.until(lambda: Scripted.runs)
        async with World(address, Scripted) as world:
            await world.ring()
        assert [run[1] for run in Scripted.runs] == [0, 0]

    asyncio.run(story())


@pytest.mark.real_time
def test_a_handler_that_takes_too_long_counts_as_failed(
    address: Address, script: list[Any]
) -> None:
    async def story() -> None:
        async def step(me: Scripted) -> None:
            me.ctx.storage.put("begun", True)
            await asyncio.sleep(60)

        script.append(step)
        async with World(address, Scripted, handler_limit_seconds=0.05) as world:
            await world.stub("Scripted").set(0)
            await world.ring()
            (attempt,) = world.attempts
            assert attempt.outcome == "retry"
            assert isinstance(attempt.error, HandlerTimeout)
            assert await world.stub("Scripted").kept() == {"begun": True}
            await world.advance(2_500)
        assert [run[1] for run in Scripted.runs] == [0, 1]

    asyncio.run(story())
