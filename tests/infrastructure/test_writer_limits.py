"""How much may wait for the writer, and for how long: callers first, then the service itself."""

import pytest

from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.infrastructure import writer as writer_module
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.claims import ClaimDueAlarms
from reservation_expiry.infrastructure.errors import (
    Overloaded,
    StoreBusy,
)
from reservation_expiry.infrastructure.objects.object_commands import (
    FreeObjects,
    LeaveObjects,
    RenewOwner,
    SlowDownAlarm,
    WriteObject,
)
from reservation_expiry.infrastructure.unit_of_work import Work
from tests.support.writers import (
    PATIENCE_SECONDS,
    Bench,
    Busy,
    hold,
    results,
)


def test_a_full_queue_says_so_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "CALLERS_LIMIT", 2)
    busy = Busy()
    bench.hand_in(busy)
    assert busy.has_begun.wait(PATIENCE_SECONDS)
    futures = [bench.hand_in(hold("seat-1")), bench.hand_in(hold("seat-2"))]
    with pytest.raises(Overloaded):
        bench.writer.execute(hold("seat-3"))
    busy.may_end.set()
    assert len(results(futures)) == 2


def test_where_callers_are_refused_the_services_own_work_still_finds_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CALLERS_LIMIT", 1)
    monkeypatch.setattr(writer_module, "QUEUE_LIMIT", 2)
    busy = Busy()
    bench.hand_in(busy)
    assert busy.has_begun.wait(PATIENCE_SECONDS)
    held = bench.hand_in(hold("seat-1"))
    claimed = bench.hand_in(ClaimDueAlarms(10, 5_000))
    with pytest.raises(Overloaded):
        bench.writer.execute(hold("seat-2"))
    with pytest.raises(Overloaded):
        bench.writer.execute(ClaimDueAlarms(10, 5_000))
    busy.may_end.set()
    assert [held.result(PATIENCE_SECONDS).version] == [2]
    assert claimed.result(PATIENCE_SECONDS).claims == []


def test_a_command_that_is_not_taken_up_in_time_never_happens(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy()
    bench.hand_in(busy)
    assert busy.has_begun.wait(PATIENCE_SECONDS)
    monkeypatch.setattr(writer_module, "WAIT_LIMIT_SECONDS", 0.0)
    with pytest.raises(StoreBusy):
        bench.writer.execute(hold("seat-1"))
    monkeypatch.undo()
    busy.may_end.set()
    bench.writer.execute(hold("seat-2"))
    assert set(bench.invariants().events) == {"seat-2"}


def test_a_command_that_was_taken_up_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that says "busy" of what then happens would be a lie."""
    busy = Busy()
    monkeypatch.setattr(writer_module, "WAIT_LIMIT_SECONDS", 0.0)
    bench.queue.after_put = lambda: busy.has_begun.wait(PATIENCE_SECONDS)
    waiting = bench.hand_in(busy)
    busy.may_end.set()
    assert waiting.result(PATIENCE_SECONDS) is None


CLAIM = Claim("object/Counter/foo", AlarmSlot(1_000), b"")
KEEP_OBJECTS = [
    RenewOwner("owner", 5_000),
    FreeObjects(["object/Counter/foo"], "owner"),
    LeaveObjects("owner"),
    SlowDownAlarm(CLAIM, None, RuntimeError("on purpose"), 0),
]


@pytest.mark.parametrize("work", KEEP_OBJECTS, ids=lambda work: type(work).__name__)
def test_where_callers_are_refused_what_keeps_an_owners_objects_finds_room(
    work: Work, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CALLERS_LIMIT", 1)
    busy = Busy()
    bench.hand_in(busy)
    assert busy.has_begun.wait(PATIENCE_SECONDS)
    held = bench.hand_in(hold("seat-1"))
    kept = bench.hand_in(work)
    with pytest.raises(Overloaded):
        bench.writer.execute(hold("seat-2"))
    with pytest.raises(Overloaded):
        bench.writer.execute(WriteObject("object/Counter/foo", "owner", 0, [], None))
    busy.may_end.set()
    assert held.result(PATIENCE_SECONDS).version == 2
    assert kept.exception(PATIENCE_SECONDS) is None
