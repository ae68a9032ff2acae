"""What any store must do, beside its sessions (`store_conformance.py`): one suite, run by every
store, whose test module subclasses `WholeStoreConformance` and provides `empty_store`."""

from abc import abstractmethod
from collections.abc import Iterator

import pytest

from reservation_expiry.infrastructure.checksum import GENESIS, chain
from reservation_expiry.infrastructure.errors import ImportRefused, VersionConflict
from reservation_expiry.infrastructure.stores.row_types import EventRow
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import Store
from tests.infrastructure.store_conformance import NOW_MS, TOPIC, seat


class WholeStoreConformance:
    """What the store itself must do, beside its sessions. `empty_store` is one whose database
    has not been made."""

    @pytest.fixture
    @abstractmethod
    def empty_store(self) -> Iterator[Store]: ...

    def test_a_log_that_is_taken_in_is_there_whole_and_its_head_is_the_same_to_all(
        self, empty_store: Store
    ) -> None:
        verified = []
        with empty_store.filling() as filling:
            filling.append([rows_from_nothing(1), [], rows_from_nothing(2)[1:]])
            with filling.transaction() as session:
                head = session.head()
            assert filling.finish(verified.append) is None
        assert len(verified) == 1
        assert head == (2, rows_from_nothing(2)[-1][-1], 2)
        assert Queries(empty_store).head() == head
        with empty_store.read_transaction() as reads:
            assert reads.head() == head
            assert [row[0] for page in reads.log() for row in page] == [1, 2]

    def test_a_log_that_is_not_finished_leaves_nothing(self, empty_store: Store) -> None:
        with empty_store.filling() as filling:
            filling.append([rows_from_nothing(2)])
        assert not empty_store.exists() or Queries(empty_store).head().position == 0

    def test_a_log_is_not_taken_in_beside_another(self, empty_store: Store) -> None:
        with empty_store.filling() as filling:
            filling.append([rows_from_nothing(2)])
            filling.finish(lambda address: None)
        with (
            pytest.raises(ImportRefused, match="holds events already"),
            empty_store.filling() as again,
        ):
            again.append([rows_from_nothing(3)])
        assert Queries(empty_store).head().position == 2

    def test_two_events_of_one_version_are_refused(self, empty_store: Store) -> None:
        first = rows_from_nothing(1)
        twice = (2, *first[0][1:])
        with pytest.raises(VersionConflict):
            take_in(empty_store, [*first, twice])
        assert not empty_store.exists() or Queries(empty_store).head().position == 0


def take_in(store: Store, rows: list[EventRow]) -> None:
    with store.filling() as filling:
        filling.append([rows])
        filling.finish(lambda address: None)


def rows_from_nothing(number: int) -> list[EventRow]:
    """The first events of a log."""
    checksum, rows = GENESIS, []
    for position in range(1, number + 1):
        rest = (seat(position), 1, TOPIC)
        checksum = chain(checksum, position, *rest, NOW_MS, b"{}")
        rows.append((position, *rest, b"{}", NOW_MS, checksum))
    return rows
