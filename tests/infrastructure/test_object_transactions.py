"""Transactions of one object run one after the other, and none keeps the others for ever."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.infrastructure.errors import ObjectDropped
from reservation_expiry.infrastructure.objects import transaction as transaction_module
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.tasks import BlockFailed
from reservation_expiry.infrastructure.objects.transaction import TransactionTimeout
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.objects import World


class Box(DurableObject):
    """Adds in transactions, around whatever a test awaits."""

    async def add(self, wait: str = "sleep", key: str = "n") -> int:
        async def closure(txn: Any) -> int:
            count = await txn.get(key) or 0
            await self._wait(wait)
            txn.put(key, count + 1)
            return count + 1

        return await self.ctx.storage.transaction(closure)

    async def _wait(self, how: str) -> None:
        if how == "sleep":
            await asyncio.sleep(0.002)
        elif how == "go":
            await self.env.world.go.wait()
        elif how == "fail":
            await asyncio.sleep(0.002)
            raise RuntimeError("on purpose")
        else:
            await self._call(how)

    async def _call(self, how: str) -> None:
        world = self.env.world
        if how == "itself, in a transaction":
            await world.stub("Box").add()
        elif how == "itself, by way of another":
            await world.stub("Box", "other").call_back()
        elif how == "itself, reading":
            await world.stub("Box").get("n")
        elif how == "a nested one":
            await self.add()
        elif how == "a block":
            await self.ctx.blockConcurrencyWhile(self.add)
        elif how == "a block that calls":
            await self.ctx.blockConcurrencyWhile(lambda: world.stub("Box").get("n"))

    async def call_back(self) -> None:
        await self.env.world.stub("Box").add()

    async def many(self, count: int) -> list[int]:
        return await asyncio.gather(*(self.add() for _ in range(count)))

    async def not_awaited(self) -> None:
        self.ctx.storage.transaction(lambda: self.ctx.storage.put("plain", 1))

    async def swallow(self) -> None:
        async def closure(txn: Any) -> None:
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.02)
                    self.ctx.storage.put("late", 1)

        await self.ctx.storage.transaction(closure)

    async def put(self, key: str, value: int) -> None:
        self.ctx.storage.put(key, value)

    async def get(self, key: str) -> Any:
        return await self.ctx.storage.get(key)


def story(address: Address, steps: Callable[[World, Any], Any]) -> None:
    async def run() -> None:
        async with World(address, Box) as world:
            world.go = asyncio.Event()
            async with asyncio.timeout(10):
                await steps(world, world.stub("Box"))

    asyncio.run(run())


def test_f51_four_transactions_that_wait_add_four(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        assert await asyncio.gather(*(box.add() for _ in range(4))) == [1, 2, 3, 4]
        assert await box.get("n") == 4

    story(address, steps)


def test_f51_so_do_those_of_one_handler(database_path: Path) -> None:
    async def steps(world: World, box: Any) -> None:
        assert await box.many(4) == [1, 2, 3, 4]

    story(database_path, steps)


def test_f51_the_next_begins_when_one_has_failed(database_path: Path) -> None:
    async def steps(world: World, box: Any) -> None:
        found = await asyncio.gather(
            *(box.add(how) for how in ("sleep", "fail", "sleep")), return_exceptions=True
        )
        assert (found[0], type(found[1]), found[2]) == (1, RuntimeError, 2)

    story(database_path, steps)


async def begun(world: World, *, others_wait: bool = False) -> None:
    """Returns when a transaction of the box is under way, and another waits for its turn."""

    def has() -> bool:
        live = world.host._residents.here("object/Box/foo")
        return live is not None and bool(
            live.turns._taken and (live.turns._waiting or not others_wait)
        )

    await world.until(has)


def test_f51_one_that_is_not_awaited_has_its_turn_too(database_path: Path) -> None:
    async def steps(world: World, box: Any) -> None:
        held = box.add("go")
        await begun(world)
        await box.not_awaited()
        assert await box.get("plain") is None
        world.go.set()
        await held
        await world.until(lambda: not world.host._residents._live["object/Box/foo"].turns._taken)
        assert await box.get("plain") == 1

    story(database_path, steps)


def test_f51_one_that_is_cancelled_leaves_the_turn_to_the_others(
    database_path: Path,
) -> None:
    async def steps(world: World, box: Any) -> None:
        calls = [box.add("go"), box.add(), box.add()]
        await world.until(lambda: "object/Box/foo" in world.host._residents._live)
        running = world.host._residents._live["object/Box/foo"].tasks._handlers
        await world.until(lambda: len(running) == 3)
        next(iter(running)).cancel()  # the one whose turn it is, or one that waits
        await world.until(lambda: len(running) == 2)
        world.go.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(str(r) for r in results if isinstance(r, int)) == ["1", "2"]

    story(database_path, steps)


def test_a_plain_put_beside_a_transaction_is_not_held_up_and_may_be_written_over(
    database_path: Path,
) -> None:
    async def steps(world: World, box: Any) -> None:
        held = box.add("go")
        await begun(world)
        await box.put("n", 10)
        await box.put("other", 1)
        world.go.set()
        assert await held == 1
        assert (await box.get("n"), await box.get("other")) == (1, 1)

    story(database_path, steps)


@pytest.fixture
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_module, "TRANSACTION_SECONDS", 0.03)


def test_f51_one_that_waits_for_ever_is_given_up_and_keeps_nothing(
    database_path: Path, little_time: None
) -> None:
    async def steps(world: World, box: Any) -> None:
        endless, other = box.add("go"), box.add()
        with pytest.raises(TransactionTimeout, match=r"a transaction may take 0.03 s"):
            await endless
        assert await other == 1

    story(database_path, steps)


def test_f51_one_that_goes_on_all_the_same_locks_nobody_out_and_writes_nothing(
    database_path: Path, little_time: None
) -> None:
    async def steps(world: World, box: Any) -> None:
        endless, other = box.swallow(), box.add()
        assert await other == 1
        with pytest.raises(TransactionTimeout):
            await endless
        assert await box.get("late") is None

    story(database_path, steps)


ITSELF = {
    "a nested one": (RuntimeError, "transactions of an object run one after the other"),
    "itself, in a transaction": (RuntimeError, "a transaction of object/Box/foo waits for this"),
    "itself, by way of another": (RuntimeError, "a transaction of object/Box/foo waits for this"),
    "a block": (BlockFailed | RuntimeError | ObjectDropped, "waits for this code"),
    "a block that calls": (RuntimeError | ObjectDropped, "call the method without a stub"),
}


@pytest.mark.parametrize("how", ITSELF)
def test_f51_one_that_would_wait_for_itself_is_an_error_at_once(
    how: str, database_path: Path
) -> None:
    kind, sentence = ITSELF[how]

    async def steps(world: World, box: Any) -> None:
        with pytest.raises(Exception, match=sentence) as failed:
            await box.add(how)
        assert isinstance(failed.value, kind)
        assert await box.add() == 1

    story(database_path, steps)


def test_one_may_call_its_own_object_for_something_else(database_path: Path) -> None:
    async def steps(world: World, box: Any) -> None:
        assert await box.add("itself, reading") == 1

    story(database_path, steps)


def test_f51_those_that_wait_for_their_turn_hear_that_the_object_was_dropped(
    database_path: Path,
) -> None:
    async def steps(world: World, box: Any) -> None:
        calls = [box.add("go"), box.add()]
        await begun(world, others_wait=True)
        world.host._residents._live["object/Box/foo"].drop(RuntimeError("on purpose"))
        with pytest.raises(ObjectDropped):
            await calls[1]
        world.go.set()
        with pytest.raises(ObjectDropped):
            await calls[0]

    story(database_path, steps)
