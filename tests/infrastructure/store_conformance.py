"""What the session of any store must do: one suite, run by every store.

A store's test module subclasses `StoreConformance` and provides `open_session`: each
call opens one more session on the same, prepared, empty store. The suite knows no SQL.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import pytest

from reservation_expiry.infrastructure.alarms.claims import RESERVATIONS
from reservation_expiry.infrastructure.checksum import GENESIS, chain
from reservation_expiry.infrastructure.errors import StoreError, VersionConflict
from reservation_expiry.infrastructure.stores.row_types import EventRow, ReservationRow
from reservation_expiry.infrastructure.unit_of_work import Session

OpenSession = Callable[[], Session]

NOW_MS = 1_800_000_000_000
TOPIC = "reservation.Held"


def seat(number: int) -> str:
    return f"reservation/seat-{number:04}"


def event_rows(session: Session, *events: tuple[str, int]) -> list[EventRow]:
    """Rows for (originator_id, version) pairs that follow the log as it stands."""
    position, checksum, _ = session.head()
    rows = []
    for originator_id, version in events:
        position += 1
        state = b'{"position":%d}' % position
        rest = (originator_id, version, TOPIC)
        checksum = chain(checksum, position, *rest, NOW_MS, state)
        rows.append((position, *rest, state, NOW_MS, checksum))
    return rows


def append(session: Session, *events: tuple[str, int]) -> list[EventRow]:
    """One committed transaction with these events."""
    session.begin()
    rows = event_rows(session, *events)
    session.append(rows)
    session.commit()
    return rows


def append_and_commit(session: Session, rows: list[EventRow]) -> None:
    """A store may tell of a conflict with the one or with the other."""
    session.append(rows)
    session.commit()


def reservation_row(number: int, version: int = 2) -> ReservationRow:
    name = seat(number).removeprefix("reservation/")
    times = (NOW_MS, NOW_MS + 5_000, None, 0, NOW_MS + 5_000)
    return (name, version, "held", *times, None, None, None)


class StoreConformance:
    """Sentences that are true of every store."""

    @pytest.fixture
    @abstractmethod
    def open_session(self) -> Iterator[OpenSession]:
        """Opens sessions on one empty store, and closes them in the end."""

    @pytest.fixture
    def session(self, open_session: OpenSession) -> Session:
        return open_session()

    # The log

    def test_an_empty_log_has_its_head_at_0(self, session: Session) -> None:
        session.begin()
        assert session.head() == (0, GENESIS, 0)
        assert session.tails([seat(1)]) == []
        assert session.history(seat(1)) == []

    def test_the_head_moves_to_the_last_event_of_each_append(self, session: Session) -> None:
        for number in range(1, 4):
            rows = append(session, (seat(number), 1), (seat(number), 2))
            session.begin()
            assert session.head() == (number * 2, rows[-1][-1], number * 2)
            session.rollback()

    def test_positions_are_contiguous_over_many_appends(self, session: Session) -> None:
        for number in range(1, 6):
            append(session, *((seat(number), version) for version in range(1, number + 1)))
        assert positions(session) == list(range(1, 16))

    def test_a_rolled_back_append_leaves_no_gap(self, session: Session) -> None:
        append(session, (seat(1), 1))
        session.begin()
        session.append(event_rows(session, (seat(2), 1), (seat(2), 2)))
        session.rollback()
        append(session, (seat(3), 1))
        assert positions(session) == [1, 2]

    def test_a_position_is_not_given_to_a_second_event(self, session: Session) -> None:
        append(session, (seat(1), 1), (seat(1), 2))
        session.begin()
        _, *rest = event_rows(session, (seat(2), 1))[0]
        with pytest.raises(StoreError):
            append_and_commit(session, [(2, *rest)])
        session.rollback()
        assert positions(session) == [1, 2]

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_version_that_is_there_already_is_a_conflict(
        self, session: Session, version: int
    ) -> None:
        append(session, (seat(1), 1), (seat(1), 2))
        session.begin()
        rows = event_rows(session, (seat(2), 1), (seat(1), version))
        with pytest.raises(VersionConflict) as conflict:
            append_and_commit(session, rows)
        assert conflict.value.__cause__ is not None
        session.rollback()
        session.begin()
        assert session.head().position == 2
        assert session.tails([seat(2)]) == []

    def test_a_version_twice_in_one_append_is_a_conflict(self, session: Session) -> None:
        session.begin()
        with pytest.raises(VersionConflict):
            append_and_commit(session, event_rows(session, (seat(1), 1), (seat(1), 1)))
        session.rollback()
        assert positions(session) == []

    def test_an_append_takes_thousands_of_events(self, session: Session) -> None:
        append(session, *((seat(number), 1) for number in range(2_500)))
        assert positions(session) == list(range(1, 2_501))

    def test_tails_are_the_newest_four_events_of_each_in_order(self, session: Session) -> None:
        append(session, *((seat(1), version) for version in range(1, 8)))
        append(session, (seat(2), 1), (seat(3), 1), (seat(2), 2))
        session.begin()
        found = session.tails([seat(2), seat(1), seat(9)])
        assert sorted(row[:2] for row in found) == [
            *((seat(1), version) for version in (4, 5, 6, 7)),
            *((seat(2), version) for version in (1, 2)),
        ]
        of_one = [row for row in found if row[0] == seat(1)]
        assert of_one == sorted(of_one)
        assert of_one[0] == (seat(1), 4, TOPIC, b'{"position":4}')

    def test_tails_see_what_their_own_transaction_appended(self, session: Session) -> None:
        session.begin()
        session.append(event_rows(session, (seat(1), 1)))
        assert [row[:2] for row in session.tails([seat(1)])] == [(seat(1), 1)]

    def test_history_is_every_event_of_one_in_order(self, session: Session) -> None:
        append(session, (seat(1), 1), (seat(2), 1), (seat(1), 2))
        append(session, *((seat(1), version) for version in range(3, 9)))
        session.begin()
        history = session.history(seat(1))
        assert [version for version, _, _ in history] == list(range(1, 9))
        assert history[1] == (2, TOPIC, b'{"position":3}')

    # Transactions

    def test_a_commit_is_seen_by_other_sessions_and_nothing_before_it(
        self, open_session: OpenSession
    ) -> None:
        ours, theirs = open_session(), open_session()
        ours.begin()
        write_everything(ours)
        ours.commit()
        theirs.begin()
        assert contents(theirs) == (1, [(seat(1), NOW_MS / 1000, b"state")], ["seat-0001"])

    def test_a_rollback_leaves_nothing(self, session: Session) -> None:
        session.begin()
        write_everything(session)
        session.rollback()
        session.begin()
        assert contents(session) == (0, [], [])

    def test_a_closed_session_leaves_nothing_of_what_was_not_committed(
        self, open_session: OpenSession
    ) -> None:
        ours, theirs = open_session(), open_session()
        ours.begin()
        write_everything(ours)
        ours.close()
        theirs.begin()
        assert contents(theirs) == (0, [], [])

    def test_a_session_that_was_closed_begins_again(self, session: Session) -> None:
        append(session, (seat(1), 1))
        session.close()
        session.close()
        append(session, (seat(1), 2))
        assert positions(session) == [1, 2]

    def test_a_rollback_of_nothing_is_nothing(self, session: Session) -> None:
        session.rollback()
        append(session, (seat(1), 1))
        session.rollback()
        assert positions(session) == [1]

    def test_a_commit_that_is_to_write_though_nothing_changed_changes_nothing(
        self, session: Session
    ) -> None:
        session.begin()
        write_everything(session)
        before = contents(session)
        session.commit()
        session.begin()
        session.mark_written()
        session.commit()
        session.begin()
        assert contents(session) == before

    # Alarms

    def test_alarms_are_put_and_put_anew(self, session: Session) -> None:
        session.begin()
        session.put_alarms([(seat(1), 5.0, b"a"), (seat(2), 6.0, b"b")])
        session.put_alarms([(seat(1), None, b"c")])
        assert session.alarm(seat(1)) == (seat(1), None, b"c")
        assert session.alarm(seat(2)) == (seat(2), 6.0, b"b")
        assert session.alarm(seat(3)) is None

    def test_alarms_are_deleted_by_id(self, session: Session) -> None:
        session.begin()
        session.put_alarms([(seat(number), 5.0, b"a") for number in range(4)])
        session.delete_alarms([seat(1), seat(3), seat(9)])
        assert due(session, NOW_MS, 10) == [
            seat(0),
            seat(2),
        ]

    def test_thousands_of_alarms_go_in_and_out_at_once(self, session: Session) -> None:
        session.begin()
        session.put_alarms([(seat(number), 5.0, b"a") for number in range(2_500)])
        assert len(session.due_alarms(NOW_MS, 5_000, RESERVATIONS)) == 2_500
        session.delete_alarms([seat(number) for number in range(2_499)])
        assert due(session, NOW_MS, 10) == [seat(2_499)]

    def test_due_alarms_are_those_whose_time_has_come_the_earliest_first(
        self, session: Session
    ) -> None:
        session.begin()
        times = {1: NOW_MS + 1, 2: NOW_MS, 3: NOW_MS - 1, 4: NOW_MS - 60_000, 5: None}
        session.put_alarms(
            [(seat(n), None if ms is None else ms / 1000, b"a") for n, ms in times.items()]
        )
        assert due(session, NOW_MS, 10) == [
            seat(4),
            seat(3),
            seat(2),
        ]
        assert due(session, NOW_MS - 1, 10) == [
            seat(4),
            seat(3),
        ]
        assert due(session, NOW_MS + 1, 10)[-1] == seat(1)

    def test_due_alarms_are_no_more_than_asked_for(self, session: Session) -> None:
        session.begin()
        session.put_alarms([(seat(number), float(number), b"a") for number in range(9, 0, -1)])
        assert due(session, NOW_MS, 3) == [
            seat(1),
            seat(2),
            seat(3),
        ]

    def test_an_alarm_is_replaced_only_while_its_state_is_the_expected(
        self, session: Session
    ) -> None:
        session.begin()
        session.put_alarms([(seat(1), 5.0, b"a"), (seat(2), 5.0, b"a")])
        assert not session.replace_alarm(b"b", (seat(1), 9.0, b"c"))
        assert session.alarm(seat(1)) == (seat(1), 5.0, b"a")
        assert session.replace_alarm(b"a", (seat(1), 9.0, b"c"))
        assert session.alarm(seat(1)) == (seat(1), 9.0, b"c")
        assert session.replace_alarm(b"c", (seat(1), None, b"d"))
        assert session.alarm(seat(1)) == (seat(1), None, b"d")
        assert session.alarm(seat(2)) == (seat(2), 5.0, b"a")

    def test_replacing_an_alarm_that_is_gone_brings_none_back(self, session: Session) -> None:
        session.begin()
        assert not session.replace_alarm(b"a", (seat(1), 9.0, b"c"))
        assert session.alarm(seat(1)) is None

    def test_an_alarm_is_removed_only_while_its_state_is_the_expected(
        self, session: Session
    ) -> None:
        session.begin()
        session.put_alarms([(seat(1), 5.0, b"a"), (seat(2), 5.0, b"a")])
        assert not session.remove_alarm(seat(1), b"b")
        assert session.alarm(seat(1)) is not None
        assert session.remove_alarm(seat(1), b"a")
        assert not session.remove_alarm(seat(1), b"a")
        assert session.alarm(seat(1)) is None
        assert session.alarm(seat(2)) is not None

    def test_an_alarm_is_parked_as_it_is_only_while_its_state_is_the_expected(
        self, session: Session
    ) -> None:
        session.begin()
        session.put_alarms([(seat(1), 5.0, b"a"), (seat(2), 5.0, b"a")])
        session.park_alarm(seat(1), b"b")
        assert session.alarm(seat(1)) == (seat(1), 5.0, b"a")
        session.park_alarm(seat(1), b"a")
        assert session.alarm(seat(1)) == (seat(1), None, b"a")
        assert due(session, NOW_MS, 10) == [seat(2)]

    # The read model

    def test_reservations_are_put_put_anew_and_deleted(self, session: Session) -> None:
        session.begin()
        session.put_reservations([reservation_row(number) for number in (1, 2, 3)])
        ended = ("expired", NOW_MS, NOW_MS + 5_000, NOW_MS + 5_001, 1, None, None, None, None)
        changed = ("seat-0002", 3, *ended)
        session.put_reservations([changed])
        session.delete_reservations(["seat-0003", "seat-0009"])
        assert session.chunk("", 10).reservations == {
            "seat-0001": reservation_row(1),
            "seat-0002": changed,
        }

    def test_chunks_walk_all_names_in_order_and_each_row_is_in_one(self, session: Session) -> None:
        append(session, *((seat(n), v) for v in (1, 2) for n in (5, 3, 1, 4, 2)))
        session.begin()
        session.put_reservations([reservation_row(number) for number in range(1, 6)])
        session.put_alarms([(seat(number), 5.0, b"a") for number in range(1, 6)])
        first, second, third = chunks(session, limit=2)
        assert first == ([1, 1, 2, 2], [1, 2], [1, 2], "seat-0002")
        assert second == ([3, 3, 4, 4], [3, 4], [3, 4], "seat-0004")
        assert third == ([5, 5], [5], [5], None)

    def test_a_chunk_that_ends_with_the_last_name_is_the_last(self, session: Session) -> None:
        append(session, *((seat(number), 1) for number in (1, 2, 3, 4)))
        session.begin()
        assert [chunk[-1] for chunk in chunks(session, limit=2)] == ["seat-0002", None]

    def test_rows_that_have_no_events_are_in_the_chunk_of_their_range(
        self, session: Session
    ) -> None:
        append(session, *((seat(number), 1) for number in (2, 4, 6)))
        session.begin()
        session.put_reservations([reservation_row(number) for number in (1, 3, 9)])
        session.put_alarms([(seat(number), 5.0, b"a") for number in (1, 5, 9)])
        first, second = chunks(session, limit=2)
        assert first == ([2, 4], [1, 3], [1], "seat-0004")
        assert second == ([6], [9], [5, 9], None)

    def test_an_empty_log_is_one_chunk_with_whatever_rows_there_are(self, session: Session) -> None:
        session.begin()
        assert chunks(session, limit=2) == [([], [], [], None)]
        session.put_reservations([reservation_row(1)])
        session.put_alarms([(seat(2), 5.0, b"a")])
        assert chunks(session, limit=2) == [([], [1], [2], None)]

    def test_a_chunk_has_the_events_with_their_positions(self, session: Session) -> None:
        append(session, (seat(2), 1), (seat(1), 1), (seat(2), 2))
        session.begin()
        assert list(session.chunk("", 10).events) == [
            (seat(1), 1, TOPIC, b'{"position":2}', 2),
            (seat(2), 1, TOPIC, b'{"position":1}', 1),
            (seat(2), 2, TOPIC, b'{"position":3}', 3),
        ]


def write_everything(session: Session) -> None:
    session.append(event_rows(session, (seat(1), 1)))
    session.put_alarms([(seat(1), NOW_MS / 1000, b"state")])
    session.put_reservations([reservation_row(1)])


def contents(session: Session) -> tuple[int, list, list[str]]:
    """(head, due alarms, names) as this transaction sees them."""
    names = list(session.chunk("", 100).reservations)
    return session.head().position, list(session.due_alarms(NOW_MS, 100, RESERVATIONS)), names


def positions(session: Session) -> list[int]:
    """Every position in the log, in order, as the next transaction sees them."""
    session.begin()
    found = sorted(row[-1] for row in session.chunk("", 10_000).events)
    session.rollback()
    return found


Numbers = Sequence[int]


def chunks(session: Session, limit: int) -> list[tuple[Numbers, Numbers, Numbers, str | None]]:
    """(numbers of the events, of the read model, of the alarms, where to go on) of each."""
    found, name = [], ""
    while name is not None:
        chunk = session.chunk(name, limit)
        name = chunk.last_name
        ids = ([row[0] for row in chunk.events], chunk.reservations, chunk.alarms)
        found.append((*([int(i[-4:]) for i in sorted(some)] for some in ids), name))
    return found


def due(session: Session, now_ms: int, limit: int) -> list[str]:
    return [row[0] for row in session.due_alarms(now_ms, limit, RESERVATIONS)]
