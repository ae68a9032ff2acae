"""People's code that raises what is meant to end a process: it fails, the process lives."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from reservation_expiry.infrastructure.objects.running_code import CodeExited, Guarded
from reservation_expiry.infrastructure.objects.tasks import BlockFailed
from tests.support.objects import World


class OwnExit(BaseException):
    pass


def raises(error: BaseException) -> Callable[[], None]:
    def exit() -> None:
        raise error

    return exit


EXITS: dict[str, Callable[[], Any]] = {
    "sys.exit": lambda: sys.exit(3),
    "KeyboardInterrupt": raises(KeyboardInterrupt()),
    "GeneratorExit": raises(GeneratorExit()),
    "one of its own": raises(OwnExit()),
}


class Exiting(DurableObject):
    """Ends the process, or tries to, wherever a test says."""

    where: ClassVar[str] = ""
    exit: ClassVar[Callable[[], Any]]

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._at("constructor")

    def _at(self, place: str) -> None:
        if Exiting.where == place:
            Exiting.exit()

    def lives(self) -> bool:
        return True

    def set(self) -> None:
        self.ctx.storage.setAlarm(1)

    def alarm(self) -> None:
        self._at("alarm")

    def plain(self) -> None:
        self._at("a plain handler")

    async def after_a_wait(self) -> None:
        await asyncio.sleep(0)
        self._at("a handler that waited")

    async def in_transaction(self) -> None:
        self.ctx.storage.put("kept", 1)

        async def closure() -> None:
            self.ctx.storage.put("not kept", 1)
            await asyncio.sleep(0)
            self._at("a transaction")

        await self.ctx.storage.transaction(closure)

    async def in_a_thread(self) -> None:
        await asyncio.to_thread(self._at, "a thread")

    async def in_a_group(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._later("a task of a group"))

    async def begins(self, how: str) -> None:
        work = self._later("work beside")
        self.ctx.waitUntil(work) if how == "waitUntil" else asyncio.create_task(work)

    async def blocks(self) -> None:
        await self.ctx.blockConcurrencyWhile(lambda: self._later("a block"))

    async def _later(self, place: str) -> None:
        await asyncio.sleep(0)
        self._at(place)

    async def kept(self) -> Any:
        return await self.ctx.storage.list()


def story(database_path: Path, where: str, kind: str, steps: Callable[[World, Any], Any]) -> None:
    async def run() -> None:
        Exiting.where, Exiting.exit = "", EXITS[kind]
        async with World(database_path, Exiting) as world:
            exiting: Any = world.stub("Exiting")
            if where != "constructor":
                await exiting.lives()
            Exiting.where = where
            await steps(world, exiting)
            Exiting.where = ""
            assert await exiting.lives()

    asyncio.run(run())


PLACES = {
    "constructor": "lives",
    "a plain handler": "plain",
    "a handler that waited": "after_a_wait",
    "a transaction": "in_transaction",
    "a thread": "in_a_thread",
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("kind", EXITS)
def test_f50_a_handler_that_exits_fails_its_call(
    where: str, kind: str, database_path: Path
) -> None:
    async def steps(world: World, exiting: Any) -> None:
        with pytest.raises(CodeExited, match="which is for ending a process"):
            await getattr(exiting, PLACES[where])()

    story(database_path, where, kind, steps)


@pytest.mark.parametrize("kind", EXITS)
def test_f50_a_task_of_a_group_that_exits_fails_its_group(kind: str, database_path: Path) -> None:
    async def steps(world: World, exiting: Any) -> None:
        with pytest.raises(ExceptionGroup) as failed:
            await exiting.in_a_group()
        assert isinstance(failed.value.exceptions[0], CodeExited)

    story(database_path, "a task of a group", kind, steps)


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("where", ["alarm", "constructor"])
def test_f50_an_alarm_that_exits_is_retried(where: str, kind: str, database_path: Path) -> None:
    async def run() -> None:
        Exiting.where, Exiting.exit = "", EXITS[kind]
        async with World(database_path, Exiting) as world:
            await world.stub("Exiting").set()
        Exiting.where = where
        async with World(database_path, Exiting) as world:
            await world.ring()
            (attempt,) = world.attempts
            assert (attempt.outcome, type(attempt.error)) == ("retry", CodeExited)
            Exiting.where = ""
            await world.advance(3_000)
            assert [a.outcome for a in world.attempts] == ["retry", "ok"]

    asyncio.run(run())


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("how", ["waitUntil", "create_task"])
def test_f50_work_beside_that_exits_ends_alone(how: str, kind: str, database_path: Path) -> None:
    async def steps(world: World, exiting: Any) -> None:
        await exiting.begins(how)
        await asyncio.sleep(0.01)

    story(database_path, "work beside", kind, steps)


@pytest.mark.parametrize("kind", EXITS)
def test_f50_what_runs_alone_and_exits_drops_its_object(kind: str, database_path: Path) -> None:
    async def steps(world: World, exiting: Any) -> None:
        with pytest.raises((CodeExited, BlockFailed)):
            await exiting.blocks()

    story(database_path, "a block", kind, steps)


def test_f50_a_transaction_that_exits_keeps_nothing(database_path: Path) -> None:
    async def steps(world: World, exiting: Any) -> None:
        with pytest.raises(CodeExited):
            await exiting.in_transaction()
        assert await exiting.kept() == {"kept": 1}

    story(database_path, "a transaction", "sys.exit", steps)


@pytest.mark.parametrize("kind", EXITS)
def test_f50_a_scheduled_event_that_exits_fails_alone(kind: str, database_path: Path) -> None:
    ran: list[str] = []

    class Agenda(EventSchedule):
        def processEvent(self, event: Any) -> None:
            ran.append(event["id"])
            if event["id"] == "bad":
                EXITS[kind]()

    async def run() -> None:
        async with World(database_path, Agenda) as world:
            agenda: Any = world.stub("Agenda")
            for name in ("bad", "good"):
                await agenda.scheduleEvent(name, 1)
            await world.ring()
            assert [a.outcome for a in world.attempts] == ["ok"]
            assert (await agenda.getEvent("bad"))["attempts"] == 1
            assert await agenda.getEvent("good") is None

    asyncio.run(run())
    assert sorted(ran) == ["bad", "good"]


def test_code_that_is_closed_is_closed_and_no_failure() -> None:
    seen: list[str] = []

    async def code() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("closed")

    guarded = Guarded(code())
    assert guarded.__name__ == "code"

    async def begin() -> None:
        guarded.send(None)

    asyncio.run(begin())
    guarded.close()
    assert seen == ["closed"]
