"""Prefixes where they are asked for: of keys, of names, of objects' ids."""

import asyncio
from typing import Any

from reservation_expiry.infrastructure.alarm_row import row_set_to
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.row_types import AlarmScope
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import Store, open_store
from tests.support.database import sql
from tests.support.objects import World

LAST = "\U0010ffff"
KEYS = ["a", f"a{LAST}", f"a{LAST}z", "b"]


class Box(DurableObject):
    async def fill(self, keys: list[str]) -> None:
        self.ctx.storage.put(dict.fromkeys(keys, 1))

    async def keys(self, prefix: str, within_a_transaction: bool) -> list[str]:
        async def listed() -> list[str]:
            return list(await self.ctx.storage.list(prefix=prefix))

        return (
            await self.ctx.storage.transaction(listed) if within_a_transaction else await listed()
        )

    async def reversed_from(self, start: str) -> list[str]:
        return list(await self.ctx.storage.list(prefix="a", start=start, reverse=True))


def test_f47_a_list_of_keys_goes_to_the_end_of_unicode(address: Address) -> None:
    async def story() -> None:
        async with World(address, Box) as world:
            box: Any = world.stub("Box")
            await box.fill([*KEYS, LAST, LAST + "x"])
            for within in (False, True):
                assert await box.keys("a", within) == KEYS[:3]
                assert await box.keys(LAST, within) == [LAST, LAST + "x"]
            assert await box.reversed_from(f"a{LAST}") == [f"a{LAST}z", f"a{LAST}"]

    asyncio.run(story())


def stored(address: Address) -> Store:
    """Rows of the projections with names that no door lets in, to have SQL decide on them."""
    insert = "INSERT INTO reservations VALUES (?, 2, 'held', 1, 2, NULL, 0, 2, NULL, NULL, NULL)"
    for key in KEYS:
        sql(address, insert, key)
        sql(address, "INSERT INTO objects VALUES (?, 1, NULL)", f"object/A{key}")
    return open_store(address)


def test_f47_the_databases_prefixes_go_there_too(address: Address) -> None:
    store = stored(address)
    queries = Queries(store)
    assert [r.name for r in queries.reservations(prefix="a", limit=10)] == KEYS[:3]
    assert [r.name for r in queries.reservations(prefix=f"a{LAST}", limit=10)] == KEYS[1:3]
    assert queries.has_objects(f"object/Aa{LAST}z")
    assert not queries.has_objects(f"object/Aa{LAST}y")
    store.close()


def test_f47_a_scope_has_the_alarms_that_begin_with_its_prefixes_and_no_others(
    address: Address,
) -> None:
    for key in KEYS:
        id, seconds, state = row_set_to(f"object/A{key}", 1_000)
        sql(address, f"INSERT INTO alarms VALUES (?, ?, x'{state.hex()}')", id, seconds)
    store = open_store(address)
    session = store.session()
    session.begin()
    for prefix, count in (("object/Aa", 3), (f"object/Aa{LAST}", 2), ("object/A", 4), (LAST, 0)):
        scope = AlarmScope((prefix,), "me")
        assert len(session.due_alarms(2_000, 10, scope)) == count
    session.rollback()
    session.close()
    store.close()
