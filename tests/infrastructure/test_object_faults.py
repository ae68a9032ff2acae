"""Objects when their code, or what is around it, goes wrong."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from reservation_expiry.infrastructure.alarms.claims import ClaimDueAlarms, RedriveAlarm
from reservation_expiry.infrastructure.errors import ObjectDropped
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.messages import Request, Response
from reservation_expiry.infrastructure.objects.tasks import BlockFailed, HandlerCancelled
from reservation_expiry.infrastructure.replay.verify import verify
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.unit_of_work import Work
from tests.support.objects import World

START = 1_800_000_000_000


class Thing(DurableObject):
    """Its alarm and its constructor do what a test says."""

    on_alarm: Callable[["Thing"], Any] | None = None
    on_make: Callable[["Thing"], Any] | None = None
    made = 0

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.storage = ctx.storage
        Thing.made += 1
        if Thing.on_make is not None:
            Thing.on_make(self)

    async def do(self, method: str, *args: Any) -> Any:
        return await getattr(self.storage, method)(*args)

    async def run(self, name: str) -> Any:
        return await self.env.world.code[name](self)

    def echo(self, method: Any = None, identity: Any = None) -> Any:
        return [method, identity]

    async def alarm(self, info: Any) -> None:
        self.storage.put("runs", (await self.storage.get("runs") or 0) + 1)
        if Thing.on_alarm is not None:
            await Thing.on_alarm(self)

    async def fetch(self, request: Request) -> Response:
        return self.env.world.shared


def story(address: Address, steps: Any, **code: Any) -> Any:
    Thing.on_alarm = Thing.on_make = None

    async def run() -> Any:
        async with World(address, Thing) as world:
            world.code, world.go = code, asyncio.Event()
            return await steps(world, world.stub("Thing"))

    return asyncio.run(run())


def block(work: Callable[[], Any]) -> Callable[[Thing], None]:
    return lambda thing: thing.ctx.blockConcurrencyWhile(work) and None


async def fails() -> None:
    raise ValueError("the real cause")


async def fails_later() -> None:
    await asyncio.sleep(0.005)
    raise ValueError("the real cause")


@pytest.mark.parametrize("work", [fails, fails_later])
def test_a_constructor_whose_block_fails_fails_the_call_once_and_says_why(
    work: Any, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(world: World, thing: Any) -> None:
        Thing.on_make = block(work)
        made = Thing.made
        with pytest.raises(BlockFailed, match="the real cause"):
            await asyncio.wait_for(thing.do("list"), 5)
        assert Thing.made == made + 1
        Thing.on_make = None
        assert await thing.do("list") == {}

    story(address, steps)
    assert "ValueError: the real cause" in caplog.text


@pytest.mark.parametrize("work", [fails, fails_later])
def test_such_a_constructor_counts_as_an_attempt_of_the_alarm(work: Any, address: Address) -> None:
    async def set_it(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START + 1)

    async def steps(world: World, thing: Any) -> None:
        Thing.on_make = block(work)
        await world.advance(10)
        assert [a.outcome for a in world.attempts] == ["retry"]

    story(address, set_it)
    story(address, steps)


def test_writes_that_a_drop_took_with_it_are_not_acknowledged(address: Address) -> None:
    async def in_transaction(thing: Thing) -> None:
        async def closure() -> None:
            thing.storage.put("a", 1)
            await thing.env.world.go.wait()

        await thing.storage.transaction(closure)

    async def put_and_wait(thing: Thing) -> None:
        await thing.env.world.go.wait()
        thing.storage.put("b", 1)
        (live,) = thing.env.world.host._residents._live.values()
        live.drop(RuntimeError("on purpose"))

    async def steps(world: World, thing: Any) -> None:
        calls = [thing.run("in_transaction"), thing.run("put_and_wait")]
        await asyncio.sleep(0.02)
        world.go.set()
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, ObjectDropped)
        assert await thing.do("list") == {}

    story(address, steps, in_transaction=in_transaction, put_and_wait=put_and_wait)


def test_work_begun_in_a_transaction_and_going_on_after_it_writes_to_the_object(
    address: Address,
) -> None:
    async def begin(thing: Thing) -> None:
        async def later() -> None:
            await thing.env.world.go.wait()
            thing.storage.put("later", 1)

        async def closure() -> None:
            thing.task = asyncio.create_task(later())
            thing.ctx.waitUntil(later())

        await thing.storage.transaction(closure)

    async def steps(world: World, thing: Any) -> None:
        await thing.run("begin")
        world.go.set()
        await asyncio.sleep(0.01)
        assert await thing.do("list") == {"later": 1}

    story(address, steps, begin=begin)


def test_a_transaction_that_waits_is_done_though_nobody_awaits_it(address: Address) -> None:
    async def begin(thing: Thing) -> None:
        async def closure() -> None:
            await asyncio.sleep(0.005)
            thing.storage.put("k", 1)

        thing.storage.transaction(closure)

    async def steps(world: World, thing: Any) -> None:
        await thing.run("begin")
        await asyncio.sleep(0.02)
        assert await thing.do("get", "k") == 1

    story(address, steps, begin=begin)


def test_a_wall_clock_that_leaps_past_the_lease_makes_the_process_look_what_it_lost(
    address: Address,
) -> None:
    async def steps() -> None:
        Thing.on_alarm = Thing.on_make = None
        async with (
            World(address, Thing) as one,
            World(address, Thing, clock=one.clock) as other,
        ):
            await one.stub("Thing").do("put", "n", 1)
            one.clock.advance(6_000)  # its monotonic clock knows nothing of it
            await other.host.ownership.renew()
            await other.stub("Thing").do("put", "n", 2)
            await one.host.ownership.renew()
            assert not one.host._residents._live

    asyncio.run(steps())


def test_calls_under_way_may_call_on_while_the_process_stops(address: Address) -> None:
    async def outer(thing: Thing) -> Any:
        await thing.env.world.go.wait()
        return await thing.env.world.stub("Thing", "other").do("put", "k", 1)

    async def steps(world: World, thing: Any) -> None:
        call = thing.run("outer")
        await asyncio.sleep(0.02)
        stopping = asyncio.create_task(world.host.stop())
        await asyncio.sleep(0.02)
        world.go.set()
        await call
        await stopping

    story(address, steps, outer=outer)


def test_work_beside_is_waited_for_when_the_process_stops(address: Address) -> None:
    async def begin(thing: Thing) -> None:
        async def later() -> None:
            await asyncio.sleep(0.02)
            thing.storage.put("later", 1)

        thing.ctx.waitUntil(later())

    story(address, lambda world, thing: thing.run("begin"), begin=begin)
    assert story(address, lambda world, thing: thing.do("list")) == {"later": 1}


def test_two_blocks_at_once_hold_calls_until_the_last_has_ended(address: Address) -> None:
    async def begin(thing: Thing) -> None:
        async def quick() -> None:
            pass

        thing.ctx.blockConcurrencyWhile(thing.env.world.go.wait)
        thing.ctx.blockConcurrencyWhile(quick)

    async def steps(world: World, thing: Any) -> None:
        await thing.run("begin")
        call = thing.do("list")
        await asyncio.sleep(0.02)
        assert not call.done()
        world.go.set()
        assert await call == {}

    story(address, steps, begin=begin)


def test_an_alarm_deleted_while_it_waits_for_a_block_does_not_run(address: Address) -> None:
    async def begin(thing: Thing) -> None:
        async def work() -> None:
            await thing.env.world.go.wait()
            assert await thing.storage.getAlarm() == START + 1
            thing.storage.deleteAlarm()

        thing.ctx.blockConcurrencyWhile(work)

    async def steps(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START + 1)
        await thing.run("begin")
        world.clock.advance(10)
        await world.look()
        await asyncio.sleep(0.02)
        world.go.set()
        await world.settled()
        assert await thing.do("get", "runs") is None

    story(address, steps, begin=begin)


async def cancels_itself(thing: Thing) -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


def test_a_cancellation_of_the_handlers_own_making_is_a_failure_like_any(
    address: Address,
) -> None:
    async def steps(world: World, thing: Any) -> None:
        with pytest.raises(HandlerCancelled):
            await thing.run("cancels_itself")
        Thing.on_alarm = cancels_itself
        await thing.do("setAlarm", START)
        await world.ring()
        assert [a.outcome for a in world.attempts] == ["retry"]

    story(address, steps, cancels_itself=cancels_itself)


def test_an_alarm_whose_object_was_dropped_meanwhile_is_not_reported_as_done(
    address: Address,
) -> None:
    async def drops(thing: Thing) -> None:
        (live,) = thing.env.world.host._residents._live.values()
        await thing.storage.sync()
        live.drop(RuntimeError("on purpose"))

    async def steps(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START)
        Thing.on_alarm = drops
        await world.look()
        await world.settled()
        assert world.attempts == []
        Thing.on_alarm = None
        await world.advance(2_000)
        assert [(a.outcome, a.claim.retry_count) for a in world.attempts] == [("ok", 0)]

    story(address, steps)


def test_claims_that_come_after_the_stop_are_given_back(address: Address) -> None:
    async def steps(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START)
        claims = await asyncio.to_thread(world.application.alarm_dispatcher.claim)
        world.host.accepting = False
        world.host.alarms.start(claims)
        await world.host.alarms._giving_back
        world.host.accepting = True
        await world.ring()
        assert [a.claim.retry_count for a in world.attempts] == [0]

    story(address, steps)


def test_a_redrive_in_the_same_batch_as_a_write_keeps_the_objects_row_right(
    address: Address,
) -> None:
    async def steps(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START + 60_000)
        held, free = asyncio.Event(), asyncio.Event()

        class Slow(Work):
            def run(self, unit: Any) -> None:
                world.host.loop.call_soon_threadsafe(held.set)
                asyncio.run_coroutine_threadsafe(free.wait(), world.host.loop).result()

        slow = asyncio.ensure_future(world.host.execute(Slow()))
        await held.wait()  # what comes now goes into one transaction
        write = thing.do("put", "k", 1)
        await asyncio.sleep(0.02)
        redrive = asyncio.ensure_future(world.host.execute(RedriveAlarm("object/Thing/foo")))
        await asyncio.sleep(0.02)
        free.set()
        await asyncio.gather(slow, write, redrive)
        await thing.do("put", "k", 2)

    story(address, steps)


def test_an_alarm_that_the_clock_parks_is_none_for_its_object_too(address: Address) -> None:
    async def steps(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START)
        scope = world.application.alarm_dispatcher.scope
        for _ in range(7):  # claimed by processes that die each time
            await world.host.execute(ClaimDueAlarms(500, 5_000, scope))
            world.clock.advance(300_000)
        await asyncio.to_thread(world.application.alarm_dispatcher.claim)
        await asyncio.sleep(0.01)
        assert await thing.do("getAlarm") is None

    story(address, steps)


def test_an_alarm_that_was_claimed_again_while_it_held_up_the_loop_runs_once(
    address: Address,
) -> None:
    async def waits_and_fails(thing: Thing) -> None:
        await thing.env.world.go.wait()
        raise RuntimeError("on purpose")

    async def steps(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START)
        Thing.on_alarm = waits_and_fails
        await world.look()
        world.clock.advance(60_000)  # the lease is over, and was not renewed
        await world.look()
        world.go.set()
        await world.settled()
        assert [(a.outcome, a.claim.retry_count) for a in world.attempts] == [("retry", 0)]
        assert await thing.do("get", "runs") == 1
        Thing.on_alarm = None
        await world.advance(2_600)
        assert [a.claim.retry_count for a in world.attempts] == [0, 1]

    story(address, steps)


def test_an_alarm_of_an_object_that_another_process_wants_is_left_to_that(
    address: Address,
) -> None:
    async def steps(world: World, thing: Any) -> None:
        await thing.do("setAlarm", START)
        world.host._residents._wanted = {"object/Thing/foo": 0.0}
        await world.look()
        await world.settled()
        assert world.attempts == []
        database = open_store(address)  # given back for a while, which is no difference
        assert verify(database, EventMapper()).differences == []
        database.close()
        world.host._residents._wanted = {}
        await world.advance(100)
        assert [(a.outcome, a.claim.retry_count) for a in world.attempts] == [("ok", 0)]

    story(address, steps)


def test_arguments_may_have_any_name_and_messages_are_copied(address: Address) -> None:
    async def steps(world: World, thing: Any) -> None:
        assert await thing.echo(method=1, identity=2) == [1, 2]
        world.shared = Response("x", headers={"A": "1"})
        first = await thing.fetch("http://x/")
        first.headers["A"] = "changed"
        assert (await thing.fetch("http://x/")).headers["A"] == "1"
        with pytest.raises(TypeError, match="prefix is text, not 5"):
            await thing.do("list", 5)

    story(address, steps)


def test_a_name_whose_constructor_fails_leaves_no_row(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(thing: Thing) -> None:
        raise RuntimeError("on purpose")

    async def steps(world: World, thing: Any) -> None:
        Thing.on_make = raising
        for number in range(3):
            with pytest.raises(RuntimeError):
                await world.stub("Thing", f"n{number}").do("list")
        assert world.application.queries.owned_objects(world.host.token) == set()

    caplog.set_level(logging.CRITICAL)
    story(address, steps)
