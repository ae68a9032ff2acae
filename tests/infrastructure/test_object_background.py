"""Tasks that an object's code begins and nobody awaits: they are the object's activity."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.infrastructure.errors import ObjectDropped
from reservation_expiry.infrastructure.objects import host as host_module
from reservation_expiry.infrastructure.objects import residents, tasks
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.running_code import unwatch_tasks, watch_tasks
from tests.support.objects import World

BEGINS: dict[str, Callable[[Any], Any]] = {
    "create_task": asyncio.create_task,
    "ensure_future": asyncio.ensure_future,
    "the loop's create_task": lambda work: asyncio.get_running_loop().create_task(work),
    "gather": lambda work: asyncio.gather(work),
    "a task of a task": lambda work: asyncio.create_task(begin_in_turn(work)),
    "a callback's task": lambda work: asyncio.get_running_loop().call_soon(
        asyncio.create_task, work
    ),
}


async def begin_in_turn(work: Any) -> None:
    begun.append(asyncio.create_task(work))


begun: list[Any] = []


class Beginner(DurableObject):
    """Begins work that writes when a test says so, and later."""

    heard: list[BaseException]

    async def begin(self, how: str) -> None:
        BEGINS[how](self._later())

    async def _later(self) -> None:
        try:
            await self.env.world.go.wait()
        except BaseException as error:
            self.env.world.heard.append(error)
            raise
        self.ctx.storage.put("later", True)

    async def begin_endless(self, *, stubborn: bool = False) -> None:
        self.task = asyncio.create_task(self._endless(stubborn))

    async def _endless(self, stubborn: bool) -> None:
        while True:
            try:
                await asyncio.sleep(0.005)
                self.ctx.storage.put("ticks", (await self.ctx.storage.get("ticks") or 0) + 1)
            except asyncio.CancelledError as error:
                self.env.world.heard.append(error)
                if not stubborn:
                    raise
            except ObjectDropped as error:
                self.env.world.heard.append(error)
                return

    async def call_other(self) -> None:
        self.call = self.env.world.stub("Beginner", "other").kept()

    def wait_until_endless(self) -> None:
        self.ctx.waitUntil(self._endless(False))

    async def kept(self) -> Any:
        return await self.ctx.storage.list()


def story(path: Path, steps: Callable[[World, Any], Any], **options: Any) -> Any:
    async def run() -> Any:
        async with World(path, Beginner, **options) as world:
            world.go, world.heard = asyncio.Event(), []
            return await steps(world, world.stub("Beginner"))

    return asyncio.run(run())


@pytest.fixture
def soon_idle(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    monkeypatch.setattr(host_module, "TEND_SECONDS", 0.005)
    return {"idle_seconds": 0.01}


@pytest.mark.parametrize("how", BEGINS)
def test_f49_work_begun_by_a_handler_keeps_its_object_until_it_has_ended(
    how: str, database_path: Path, soon_idle: dict[str, float]
) -> None:
    async def steps(world: World, beginner: Any) -> None:
        await beginner.begin(how)
        await asyncio.sleep(0.05)  # long idle, but for the work
        assert list(world.host._residents._live) == ["object/Beginner/foo"]
        world.go.set()
        await world.until(lambda: not world.host._residents._live)
        assert await beginner.kept() == {"later": True}

    story(database_path, steps, **soon_idle)


@pytest.mark.parametrize("how", BEGINS)
def test_f49_it_is_waited_for_when_the_process_stops(how: str, database_path: Path) -> None:
    async def steps(world: World, beginner: Any) -> None:
        await beginner.begin(how)
        asyncio.get_running_loop().call_later(0.05, world.go.set)

    story(database_path, steps)
    assert story(database_path, lambda world, beginner: beginner.kept()) == {"later": True}


def test_f49_what_does_not_end_at_a_stop_is_cancelled(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "STOP_SECONDS", 0.02)

    async def steps(world: World, beginner: Any) -> list[BaseException]:
        await beginner.begin("create_task")
        return world.heard

    (heard,) = story(database_path, steps)
    assert isinstance(heard, asyncio.CancelledError)


def handed_over(path: Path, begin: Callable[[Any], Any]) -> list[BaseException]:
    """What endless work of one process hears when another asks for its object, and gets it."""

    async def run() -> list[BaseException]:
        async with World(path, Beginner) as one, World(path, Beginner, clock=one.clock) as other:
            one.go, one.heard = asyncio.Event(), []
            await begin(one.stub("Beginner"))
            await asyncio.sleep(0.02)
            await one.host.ownership.renew()  # and sees that it is not alone
            assert (await other.stub("Beginner").kept())["ticks"] >= 1
            await asyncio.sleep(0.02)
            return one.heard

    return asyncio.run(run())


@pytest.fixture
def soon_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(host_module, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(tasks, "CANCEL_SECONDS", 0.05)


ENDLESS = {
    "a task": lambda beginner: beginner.begin_endless(),
    "waitUntil": lambda beginner: beginner.wait_until_endless(),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_f49_endless_work_is_told_and_cancelled_when_another_process_wants_the_object(
    kind: str, database_path: Path, soon_handed_over: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (heard,) = handed_over(database_path, ENDLESS[kind])
    assert isinstance(heard, asyncio.CancelledError)
    assert "let go of: another process wants it" in str(heard)
    assert "object/Beginner/foo is let go of: another process wants it: 1 tasks" in caplog.text


def test_f49_work_that_does_not_even_end_then_can_write_nothing_more(
    database_path: Path, soon_handed_over: None, caplog: pytest.LogCaptureFixture
) -> None:
    begin = lambda beginner: beginner.begin_endless(stubborn=True)  # noqa: E731
    cancelled, dropped = handed_over(database_path, begin)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(dropped, ObjectDropped)
    assert "1 tasks of object/Beginner/foo do not end" in caplog.text


def test_f49_endless_work_makes_room_when_memory_is_full(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residents, "MAX_OBJECTS", 10)

    async def steps(world: World, beginner: Any) -> None:
        for number in range(10):
            await world.stub("Beginner", f"n{number}").begin_endless()
        await beginner.kept()
        assert len(world.host._residents._live) == 10
        assert "object/Beginner/n0" not in world.host._residents._live
        assert [type(error) for error in world.heard] == [asyncio.CancelledError]
        world.host._residents._live["object/Beginner/n1"].tasks.cancel()

    monkeypatch.setattr(host_module, "STOP_SECONDS", 0.02)
    story(database_path, steps)


def test_making_another_object_is_not_the_activity_of_the_one_that_calls_it(
    database_path: Path,
) -> None:
    async def steps(world: World, beginner: Any) -> None:
        await beginner.call_other()
        await world.until(lambda: len(world.host._residents._live) == 2)
        foo = world.host._residents._live["object/Beginner/foo"]
        await world.until(lambda: foo.idle)

    story(database_path, steps)


def test_a_task_factory_that_was_there_before_makes_the_tasks_and_comes_back() -> None:
    made: list[Any] = []

    def factory(loop: Any, code: Any, **options: Any) -> Any:
        made.append(code)
        return asyncio.Task(code, loop=loop, **options)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        watch_tasks(loop)
        watch_tasks(loop)  # two hosts on one loop
        await asyncio.create_task(asyncio.sleep(0))
        assert len(made) == 1
        unwatch_tasks(loop)
        assert loop.get_task_factory() is not factory
        unwatch_tasks(loop)
        assert loop.get_task_factory() is factory

    asyncio.run(run())
