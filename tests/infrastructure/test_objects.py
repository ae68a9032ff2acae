"""Durable objects: what they keep, when it is safe, who may run them."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.domain.durable_object import StorageWritten
from reservation_expiry.infrastructure.errors import (
    ObjectDropped,
    ObjectElsewhere,
    StoreFull,
    VersionConflict,
)
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.objects import checkpoint_cadence, residents
from reservation_expiry.infrastructure.objects import host as host_module
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.host import NoSuchMethod
from reservation_expiry.infrastructure.objects.messages import Request, Response
from reservation_expiry.infrastructure.objects.object_commands import WriteObject
from reservation_expiry.infrastructure.replay.backup import import_log
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.replay.verify import verify
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.database import sql
from tests.support.objects import World


class Box(DurableObject):
    """Does to its storage what it is told."""

    made = 0

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        Box.made += 1
        self.storage = ctx.storage

    async def do(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.storage, method)(*args, **kwargs)

    def do_not_wait(self, method: str, *args: Any) -> None:
        getattr(self.storage, method)(*args)

    async def add(self, key: str = "n") -> int:
        count = (await self.storage.get(key) or 0) + 1
        self.storage.put(key, count)
        return count

    async def put_and_raise(self) -> None:
        self.storage.put("kept", 1)
        raise RuntimeError("after the put")

    async def in_transaction(self, *steps: Any) -> Any:
        async def closure(txn: Any) -> Any:
            for method, *args in steps:
                if method == "raise":
                    raise RuntimeError("in the transaction")
                if method == "pause":
                    await asyncio.sleep(0)
                else:
                    await getattr(txn, method)(*args)
            return "done"

        return await self.storage.transaction(closure)

    def plain_transaction(self) -> None:
        self.storage.transaction(lambda: self.storage.put("plain", 1))

    async def wait(self) -> None:
        self.storage.put("waited", True)
        await self.env.world.go.wait()

    async def fetch(self, request: Request) -> Response:
        return Response.json({"method": request.method, "body": await request.json()}, status=201)

    def alarm(self) -> None: ...

    def _secret(self) -> None: ...


def story(address: Address, steps: Any, *classes: type, **options: Any) -> Any:
    async def run() -> Any:
        async with World(address, *(classes or (Box,)), **options) as world:
            return await steps(world, world.stub("Box"))

    return asyncio.run(run())


def topics(address: Address) -> list[str]:
    store = open_store(address)
    with store.read_transaction() as reads:
        found = [row[3] for page in reads.log() for row in page]
    store.close()
    return found


def verified(address: Address) -> None:
    database = open_store(address)
    report = verify(database, EventMapper())
    database.close()
    assert report.differences == []


VALUES = [
    *(None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "Zoë \U0001f600"),
    *([], {}, [1, [2, {"a": None}]]),
]
VALUES_REFUSED = {
    "a set": ({1}, r"a set, which cannot be kept"),
    "bytes": (b"x", r"a bytes"),
    "nan": (float("nan"), r"nan, which JSON has no number for"),
    "an object": (object(), r"an object"),
    "a key that is no text": ({1: 2}, r"has the key 1, and keys are text"),
    "deep inside": ({"a": [1, {2}]}, r"\['a'\]\[1\] is a set"),
    "a large integer": (2**64, r"more than 64 bits"),
    "half a character": ("\ud800", r"cannot be kept"),
    "a megabyte or three": ("x" * (3 * 1024 * 1024), r"at most 2097152 are allowed"),
}


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was_in_another_process(value: Any, address: Address) -> None:
    story(address, lambda world, box: box.do("put", "k", value))
    assert story(address, lambda world, box: box.do("get", "k")) == value


@pytest.mark.parametrize("kind", VALUES_REFUSED)
def test_what_cannot_be_kept_is_a_type_error(kind: str, address: Address) -> None:
    value, sentence = VALUES_REFUSED[kind]

    class Putting(DurableObject):
        def put(self) -> None:
            with pytest.raises(TypeError, match=sentence):
                self.ctx.storage.put("k", value)
            with pytest.raises(TypeError, match=sentence):
                self.ctx.storage.put({"a": 1, "k": value})

        async def all(self) -> Any:
            return await self.ctx.storage.list()

    async def steps(world: World, box: Any) -> None:
        await world.stub("Putting").put()
        assert await world.stub("Putting").all() == {}

    story(address, steps, Putting, Box)


@pytest.mark.parametrize("key", [7, "", "x" * 2049, None, "\ud800"], ids=lambda k: repr(k)[:12])
def test_a_bad_key_is_a_type_error(key: Any, address: Address) -> None:
    class Keyed(DurableObject):
        def put(self) -> None:
            with pytest.raises(TypeError, match="key"):
                self.ctx.storage.put(key, 1)

    story(address, lambda world, box: world.stub("Keyed").put(), Keyed, Box)


LISTS = {
    (): ["a", "ab", "b", "c"],
    (("prefix", "a"),): ["a", "ab"],
    (("start", "ab"),): ["ab", "b", "c"],
    (("end", "b"),): ["a", "ab"],
    (("limit", 2),): ["a", "ab"],
    (("reverse", True), ("limit", 3)): ["c", "b", "ab"],
    (("prefix", "a"), ("start", "aa")): ["ab"],
    (("prefix", "z"),): [],
}


@pytest.mark.parametrize("options", LISTS)
@pytest.mark.parametrize("fresh", [False, True], ids=["stored", "within a transaction"])
def test_list_gives_keys_in_order(options: Any, fresh: bool, address: Address) -> None:
    class Lister(DurableObject):
        async def keys(self) -> list[str]:
            storage = self.ctx.storage
            storage.put({"c": 3, "old": 0, "ab": 2})

            async def closure() -> list[str]:
                await storage.put({"a": 1, "b": 2})
                await storage.delete("old")
                return list(await storage.list(**dict(options)))

            if fresh:
                return await storage.transaction(closure)
            return await closure()

    async def steps(world: World, box: Any) -> None:
        assert await world.stub("Lister").keys() == LISTS[options]

    story(address, steps, Lister, Box)


def test_several_keys_at_once(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        await box.do("put", {"a": 1, "b": 2, "c": 3})
        assert await box.do("get", ["a", "x", "c"]) == {"a": 1, "c": 3}
        assert await box.do("delete", "a") is True
        assert await box.do("delete", "a") is False
        assert await box.do("delete", ["b", "x"]) == 1
        await box.do("deleteAll")
        assert await box.do("list") == {}

    story(address, steps)
    verified(address)


def test_a_call_acts_whether_it_is_awaited_or_not(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        await box.do_not_wait("put", "k", 1)
        await box.plain_transaction()
        assert await box.do("list") == {"k": 1, "plain": 1}

    story(address, steps)


def test_what_is_read_is_a_copy(address: Address) -> None:
    class Copying(DurableObject):
        async def change(self) -> Any:
            self.ctx.storage.put("k", [1])
            (await self.ctx.storage.get("k")).append(2)
            return await self.ctx.storage.get("k")

    async def steps(world: World, box: Any) -> None:
        assert await world.stub("Copying").change() == [1]

    story(address, steps, Copying, Box)


def test_writes_of_one_handler_and_its_alarm_are_one_append(address: Address) -> None:
    class Both(DurableObject):
        def go(self) -> None:
            self.ctx.storage.put("a", 1)
            self.ctx.storage.put("b", 2)
            self.ctx.storage.setAlarm(self.env.world.clock.now_ms() + 1)

        def alarm(self) -> None: ...

    story(address, lambda world, box: world.stub("Both").go(), Both, Box)
    assert topics(address) == ["object.StorageWritten", "object.AlarmSet"]
    assert sql(address, "SELECT count(DISTINCT recorded_at_ms) FROM events") == [(1,)]


def test_writes_of_a_handler_that_raises_are_kept(address: Address) -> None:
    async def steps(world: World, box: Any) -> Any:
        with pytest.raises(RuntimeError, match="after the put"):
            await box.put_and_raise()

    story(address, steps)
    assert story(address, lambda world, box: box.do("list")) == {"kept": 1}


TRANSACTIONS: dict[str, tuple[list[Any], dict[str, Any], bool]] = {
    "is kept": ([("put", "a", 2), ("put", "b", 1)], {"a": 2, "b": 1}, True),
    "that raises leaves nothing": ([("put", "a", 2), ("put", "b", 1), ("raise",)], {"a": 1}, False),
    "... of its deletions": ([("deleteAll",), ("raise",)], {"a": 1}, False),
    "that waits is kept": ([("delete", "a"), ("pause",), ("put", "c", 3)], {"c": 3}, True),
    "that waits and raises is not": ([("delete", "a"), ("pause",), ("raise",)], {"a": 1}, False),
}  # fmt: skip


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_a_transaction(kind: str, address: Address) -> None:
    steps_of, expected, ends_well = TRANSACTIONS[kind]

    async def steps(world: World, box: Any) -> None:
        await box.do("put", "a", 1)
        if ends_well:
            assert await box.in_transaction(*steps_of) == "done"
        else:
            with pytest.raises(RuntimeError, match="in the transaction"):
                await box.in_transaction(*steps_of)
        assert await box.do("list") == expected

    story(address, steps)
    assert story(address, lambda world, box: box.do("list")) == expected


def test_an_alarm_set_in_a_transaction_that_raises_is_not_set(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        later = world.clock.now_ms() + 1_000
        await box.do("setAlarm", later)
        with pytest.raises(RuntimeError):
            await box.in_transaction(("setAlarm", later + 1), ("raise",))
        assert await box.do("getAlarm") == later
        await box.in_transaction(("deleteAlarm",))
        assert await box.do("getAlarm") is None

    story(address, steps)


def test_no_one_else_sees_what_a_transaction_has_not_committed(address: Address) -> None:
    class Waiting(Box):
        async def open(self) -> None:
            async def closure() -> None:
                self.storage.put("k", 1)
                await self.env.world.go.wait()

            await self.storage.transaction(closure)

    async def steps(world: World, box: Any) -> None:
        world.go = asyncio.Event()
        stub = world.stub("Waiting")
        opened = stub.open()
        await asyncio.sleep(0.01)
        assert await stub.do("get", "k") is None
        world.go.set()
        await opened
        assert await stub.do("get", "k") == 1

    story(address, steps, Waiting, Box)


def test_writes_are_on_disk_before_the_handler_goes_on_after_sync(address: Address) -> None:
    seen: list[int] = []

    class Syncing(DurableObject):
        async def go(self) -> None:
            self.ctx.storage.put("k", 1)
            await self.ctx.storage.sync()
            seen.append(len(topics(address)))

    story(address, lambda world, box: world.stub("Syncing").go(), Syncing, Box)
    assert seen == [1]


def test_what_a_handler_wrote_is_safe_while_it_still_waits(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        world.go = asyncio.Event()
        waiting = box.wait()
        await world.until(lambda: topics(address) == ["object.StorageWritten"])
        assert await box.add() == 1  # others run meanwhile
        world.go.set()
        await waiting

    story(address, steps)


def test_a_commit_that_fails_drops_the_object_and_whoever_depended_on_it(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(world: World, box: Any) -> None:
        await box.add()

        def full(self: Any, unit: Any) -> None:
            raise StoreFull("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(WriteObject, "run", full)
            first, second, reader = box.add(), box.add(), box.do("get", "n")
            for call in (first, second, reader):
                with pytest.raises(ObjectDropped, match="the disk is full"):
                    await call
        assert await box.add() == 2  # made anew, from what the log has

    made = Box.made
    story(address, steps)
    assert Box.made == made + 2
    verified(address)


def test_calls_copy_what_they_carry(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        with pytest.raises(TypeError, match=r"argument 3 of do\(\) is a set"):
            await box.do("put", "k", {1})
        with pytest.raises(NoSuchMethod, match="no public method alarm"):
            await box.alarm()
        with pytest.raises(NoSuchMethod, match="no public method nothing"):
            await box.nothing()
        with pytest.raises(AttributeError):
            box._secret()

    story(address, steps)


def test_fetch_carries_requests_and_responses(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        answer = await box.fetch("http://x/", method="POST", body='{"a":1}')
        assert (answer.status, answer.ok) == (201, True)
        assert await answer.json() == {"method": "POST", "body": {"a": 1}}
        assert answer.headers["content-type"] == "application/json"

    story(address, steps)


def test_an_object_is_loaded_from_a_snapshot_and_what_came_after(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_cadence, "CHECKPOINT_EVERY", 5)

    async def adds(world: World, box: Any) -> None:
        for _ in range(13):
            await box.add()

    story(address, adds)
    assert sql(address, "SELECT version FROM snapshots") == [(10,)]
    verified(address)
    sql(address, "DELETE FROM events WHERE originator_version <= 10")  # not read again
    assert story(address, lambda world, box: box.add()) == 14


def test_idle_objects_are_dropped_from_memory_and_come_back(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "TEND_SECONDS", 0.01)

    async def steps(world: World, box: Any) -> None:
        await box.add()
        made = Box.made
        await world.until(lambda: not world.host._residents._live)
        assert await box.add() == 2
        assert Box.made == made + 1

    story(address, steps, idle_seconds=0.02)


# Several processes on one database; here, two hosts in one.


async def two(address: Address, steps: Any) -> None:
    async with World(address, Box) as one, World(address, Box, clock=one.clock) as other:
        for world in (one, other):
            await world.host.ownership.renew()
            assert world.host.ownership.shared
        await steps(one, other)


def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(residents, "HANDOVER_POLL_SECONDS", 0.002)
    monkeypatch.setattr(residents, "HANDOVER_SECONDS", 0.3)


async def freeze(world: World) -> None:
    """From here on it renews nothing, and its lease is over."""
    world.host._tending.cancel()
    await asyncio.sleep(0.05)  # for a renewal that is on its way already
    world.clock.advance(60_000)


def test_an_object_goes_to_the_process_that_asks_for_it(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)

    async def steps(one: World, other: World) -> None:
        for n in range(1, 21):
            assert await (one, other)[n % 2].stub("Box").add() == n

    asyncio.run(two(address, steps))
    verified(address)


def test_callers_of_two_processes_lose_no_increment(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    monkeypatch.setattr(residents, "HANDOVER_SECONDS", 10)

    async def steps(one: World, other: World) -> None:
        async def caller(world: World) -> None:
            for _ in range(20):
                await world.stub("Box").add()

        await asyncio.gather(*(caller(world) for world in (one, other) * 3))
        assert await one.stub("Box").add() == 121

    asyncio.run(two(address, steps))
    verified(address)


def test_an_object_that_is_not_handed_over_in_time_is_elsewhere(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)

    async def steps(one: World, other: World) -> None:
        one.go = asyncio.Event()
        waiting = one.stub("Box").wait()
        await asyncio.sleep(0.02)
        with pytest.raises(ObjectElsewhere, match="did not let go of it"):
            await other.stub("Box").add()
        one.go.set()
        await waiting
        assert await other.stub("Box").add() == 1

    asyncio.run(two(address, steps))


def test_a_process_that_was_frozen_past_its_lease_cannot_write_over_its_successor(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(one: World, other: World) -> None:
        assert await one.stub("Box").add() == 1
        await freeze(one)
        one.host.ownership._valid_ms = 2**63  # it wakes up believing, by any clock
        await other.host.ownership.renew()
        assert await other.stub("Box").do("list") == {"n": 1}  # it has only read, so far
        with pytest.raises(ObjectDropped, match="taken over"):
            await one.stub("Box").add()
        assert await other.stub("Box").add() == 2

    asyncio.run(two(address, steps))
    verified(address)


def test_a_process_that_was_frozen_answers_no_read_from_what_it_remembers(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)

    async def steps(one: World, other: World) -> None:
        await one.stub("Box").add()
        await freeze(one)
        one.host.ownership._valid_seconds = 0  # its own clock says so too
        await other.host.ownership.renew()
        await other.stub("Box").add()
        assert await one.stub("Box").do("get", "n") == 2  # asked for, and read anew

    asyncio.run(two(address, steps))


def test_a_handler_that_was_overtaken_while_it_waited_does_not_answer(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reader(Box):
        async def look(self) -> Any:
            found = await self.storage.get("n")
            await self.env.world.go.wait()
            return found

    async def steps() -> None:
        async with (
            World(address, Reader) as one,
            World(address, Reader, clock=one.clock) as other,
        ):
            one.go = asyncio.Event()
            await one.stub("Reader").add()
            looking = one.stub("Reader").look()
            await asyncio.sleep(0.02)
            await freeze(one)
            one.host.ownership._valid_seconds = 0
            await other.host.ownership.renew()
            await other.stub("Reader").add()
            one.go.set()
            with pytest.raises(ObjectElsewhere, match="took object/Reader/foo over"):
                await looking

    asyncio.run(steps())


def test_the_objects_of_a_process_that_is_gone_are_free_at_once(address: Address) -> None:
    name_of_a_child = (
        "from reservation_expiry.infrastructure.machine.processes import this_process as t; "
        "print(t())"
    )
    gone = subprocess.run(
        [sys.executable, "-c", name_of_a_child], capture_output=True, text=True, check=True
    ).stdout.strip()

    async def leave_behind(world: World, box: Any) -> None:
        await box.add()

    story(address, leave_behind)
    sql(address, "INSERT INTO owners VALUES ('dead', ?, ?)", 2**50, gone)
    sql(address, "INSERT INTO ownerships VALUES ('object/Box/foo', 'dead', 0)")
    assert story(address, lambda world, box: box.add()) == 2


def test_a_write_on_another_version_than_the_newest_is_refused(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        await box.add()
        stale = [StorageWritten("object/Box/foo", 1, {}, (), False)]
        work = WriteObject("object/Box/foo", world.host.token, 0, stale, None)
        with pytest.raises(VersionConflict, match="is at version 1, not 0"):
            await world.host.execute(work)

    story(address, steps)
    verified(address)


def test_nothing_is_written_of_an_object_after_it_was_dropped(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        await box.add()
        (live,) = world.host._residents._live.values()
        for value in (b"1", b"2"):  # the first is on its way, the second waits for it
            live.memory.write("k", value)
            live.flush()
        live.drop(RuntimeError("on purpose"))
        await asyncio.sleep(0.05)
        assert await box.do("get", "k") == 1

    story(address, steps)
    assert len(topics(address)) == 2


def test_an_object_that_calls_itself_in_a_transaction_sees_what_others_see(
    address: Address,
) -> None:
    class Twice(Box):
        async def nested(self) -> Any:
            async def closure() -> Any:
                self.storage.put("k", 1)
                return await self.env.world.stub("Twice").do("get", "k")

            return await self.storage.transaction(closure)

    async def steps(world: World, box: Any) -> None:
        assert await world.stub("Twice").nested() is None
        assert await world.stub("Twice").do("get", "k") == 1

    story(address, steps, Twice, Box)


# Verify and rebuild.

DAMAGE = {
    "a lost alarm": "DELETE FROM alarms",
    "an alarm at another time": "UPDATE alarms SET next_run_time = next_run_time + 1",
    "a row at another version": "UPDATE objects SET version = 7",
    "a lost row": "DELETE FROM objects",
    "a row of nothing": "INSERT INTO objects VALUES ('object/Box/ghost', 1, NULL)",
    "an alarm of nothing": "INSERT INTO alarms VALUES ('object/Box/ghost', 1.0, x'7b7d')",
    "a wrong snapshot": "INSERT INTO snapshots VALUES ('object/Box/foo', 1, x'7b7d')",
    "a snapshot of nothing": "INSERT INTO snapshots VALUES ('object/Box/ghost', 1, x'7b7d')",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_verify_finds_and_rebuild_mends_of_an_object(kind: str, address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        await box.add()
        await box.do("setAlarm", world.clock.now_ms() + 60_000)

    story(address, steps)
    verified(address)
    sql(address, DAMAGE[kind])
    database = open_store(address)
    assert verify(database, EventMapper()).found >= 1
    database.close()

    async def mend(world: World, box: Any) -> None:
        application = world.application
        await asyncio.to_thread(rebuild, application.writer.execute, application.mapper)

    story(address, mend)
    verified(address)


def test_a_log_with_objects_goes_out_and_in_again(address: Address, tmp_path: Path) -> None:
    big = "x" * (2 * 1024 * 1024 - 2)

    async def steps(world: World, box: Any) -> None:
        await box.do("put", {f"big{n}": big for n in range(5)})  # more than one event takes
        await box.do("setAlarm", world.clock.now_ms() + 60_000)

    story(address, steps)
    assert topics(address) == ["object.StorageWritten"] * 2 + ["object.AlarmSet"]
    database = open_store(address)
    export_log(database, str(tmp_path / "log.jsonl"))
    database.close()
    report = import_log(str(tmp_path / "log.jsonl"), tmp_path / "copy.db")
    assert (report.found, report.aggregates) == (0, 1)
    assert len(story(tmp_path / "copy.db", lambda world, box: box.do("list"))) == 5


def test_an_object_whose_caller_went_away_stays_until_its_handler_has_ended(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)

    async def steps(world: World, box: Any) -> None:
        world.go = asyncio.Event()
        waiting = box.wait()
        await world.until(lambda: topics(address))
        waiting.cancel()
        await asyncio.sleep(0.1)
        assert world.host._residents._live
        world.go.set()
        await world.until(lambda: not world.host._residents._live)

    story(address, steps, idle_seconds=0.02)


def test_the_sweep_restores_an_objects_lost_alarm(address: Address) -> None:
    async def steps(world: World, box: Any) -> None:
        await box.do("setAlarm", world.clock.now_ms() + 60_000)
        await asyncio.to_thread(sql, address, "DELETE FROM alarms")
        assert await asyncio.to_thread(world.application.sweep) == 1

    story(address, steps)
    verified(address)
