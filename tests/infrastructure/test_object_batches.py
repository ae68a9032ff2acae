"""Writes of several objects in one transaction: asked for at once, decided one by one."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reservation_expiry.domain.durable_object import AlarmSet, ObjectEvent, StorageWritten
from reservation_expiry.infrastructure.errors import ObjectElsewhere, StoreDamaged, VersionConflict
from reservation_expiry.infrastructure.objects.object_commands import AcquireObject, WriteObject
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.logs import verified
from tests.support.writers import Bench, CountingSession, hold, results

A, B, C = (f"object/Box/{name}" for name in "abc")


class AskedSession(CountingSession):
    """Notes which objects it is asked for, and cannot read some."""

    asked: list[list[str]]
    damaged: str | None = None

    def owned(self, object_ids: Sequence[str]) -> Any:
        self.asked.append(sorted(object_ids))
        if self.damaged in object_ids:
            raise StoreDamaged("its page cannot be read")
        return super().owned(object_ids)


@pytest.fixture
def bench(database_path: Path) -> Iterator[Bench]:
    """On which A and B are "me"'s, and C is another's."""
    bench = Bench(database_path, AskedSession)
    bench.session.asked = []
    bench.batch(AcquireObject(A, "me"), AcquireObject(B, "me"), AcquireObject(C, "other"))
    yield bench
    bench.close()


def write(object_id: str, version: int, *, owner: str = "me") -> WriteObject:
    put: ObjectEvent = StorageWritten(object_id, version + 1, {"n": b"1"}, (), False)
    return WriteObject(object_id, owner, version, [put], None)


def test_the_rows_of_a_batch_of_objects_are_fetched_in_one_query(bench: Bench) -> None:
    results(bench.batch(write(A, 0), write(B, 0), write(A, 1), hold("seat-1")))
    assert bench.session.asked == [[A, B]]
    results(bench.batch(write(A, 2), write(B, 1)))
    assert verified(bench.path).differences == []


def test_without_an_object_nothing_is_asked(bench: Bench) -> None:
    results(bench.batch(hold("seat-1"), AcquireObject(A, "me")))
    assert bench.session.asked == []


def test_one_that_is_another_s_or_has_moved_on_is_refused_alone(bench: Bench) -> None:
    taken, stale, well = bench.batch(write(C, 0), write(A, 7), write(B, 0))
    assert isinstance(taken.exception(), ObjectElsewhere)
    assert isinstance(stale.exception(), VersionConflict)
    assert well.exception() is None


def test_one_whose_row_cannot_be_read_fails_alone(bench: Bench) -> None:
    bench.session.damaged = B
    well, broken, held = bench.batch(write(A, 0), write(B, 0), hold("seat-1"))
    assert isinstance(broken.exception(), StoreDamaged)
    assert (well.exception(), held.exception()) == (None, None)


def test_who_has_an_object_and_how_far_it_is(address: Address) -> None:
    with closing(open_store(address)) as store:
        session = store.session()
        session.begin()
        session.acquire(A, "me", 1)
        session.acquire(B, "me", 1)
        session.put_objects([(A, 3, 9_000), (C, 2, None)])
        found = session.owned([A, B, C])
        session.rollback()
        session.close()
    assert sorted(found) == [(A, "me", 3, 9_000), (B, "me", None, None)]


def test_an_alarm_outlives_a_write_of_storage_in_the_same_batch(bench: Bench) -> None:
    armed = WriteObject(A, "me", 0, [AlarmSet(A, 1, 9_000)], None)
    results(bench.batch(armed, write(A, 1)))
    bench.session.begin(appends=False)
    assert bench.session.object_row(A) == (A, 2, 9_000)
    bench.session.rollback()
