"""What objects and their owners ask of the writer.

An object is written by its owner only, and only on the version that the owner knows: a
process that was frozen and has lost the object to another finds both changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.domain.durable_object import ObjectEvent
from reservation_expiry.infrastructure.alarm_row import encode, row_of
from reservation_expiry.infrastructure.alarms.attempt import Attempt, Claim
from reservation_expiry.infrastructure.errors import ObjectElsewhere, VersionConflict
from reservation_expiry.infrastructure.machine.processes import is_gone, this_process
from reservation_expiry.infrastructure.stores.row_types import AlarmRow, AttemptFacts, SnapshotRow
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work


@dataclass(frozen=True, slots=True)
class Acquired:
    """What an object is made from: a checkpoint, the events since, and its alarm row."""

    checkpoint: SnapshotRow | None
    events: list[tuple[int, str, bytes]]  # (version, topic, state)
    alarm: AlarmRow | None


class AcquireObject(Work):
    """Makes an object this owner's. Returns Acquired, or None if another has it.

    The other is asked for it, and hands it over when it can.
    """

    on_tables = True

    def __init__(self, object_id: str, owner: str) -> None:
        self._object_id = object_id
        self._owner = owner

    def run(self, unit: UnitOfWork) -> Acquired | None:
        session, object_id = unit.session, self._object_id
        if not session.acquire(object_id, self._owner, unit.now_ms):
            return None
        checkpoint = session.snapshot(object_id)
        events = session.history(object_id, checkpoint[1] if checkpoint else 0)
        return Acquired(checkpoint, events, session.alarm(object_id))


class WriteObject(Work):
    """Appends what an object did, behind `version`.

    Raises ObjectElsewhere if it is no longer the owner's, VersionConflict if it has moved
    on.
    """

    def __init__(
        self,
        object_id: str,
        owner: str,
        version: int,
        events: Sequence[ObjectEvent],
        checkpoint: SnapshotRow | None,
        authors: Sequence[str | None] = (),
        attempts: Sequence[AttemptFacts] = (),
    ) -> None:
        self.object_ids = (object_id,)
        self._object_id = object_id
        self._owner = owner
        self._version = version
        self._events = events
        self._authors = authors
        self._attempts = attempts
        self._checkpoint = checkpoint

    def run(self, unit: UnitOfWork) -> None:
        if unit.owner_of(self._object_id) != self._owner:
            raise ObjectElsewhere(f"{self._object_id} was taken over by another process")
        _, version, _ = unit.object_row(self._object_id)
        if version != self._version:
            raise VersionConflict(f"{self._object_id} is at version {version}, not {self._version}")
        unit.append_to_object(self._object_id, self._events, self._authors)
        unit.keep_attempts(self._attempts)
        checkpoint = self._checkpoint
        if checkpoint is not None:
            unit.after_flush(lambda: unit.session.put_snapshot(checkpoint))


class RenewOwner(Work):
    """Keeps an owner's objects, and its claims on alarms, its own for another `lease_ms`.

    Frees those of owners whose lease is long over, or whose process is seen to be gone.
    Returns whether the owner's own lease had not ended before, by the clock that the
    others go by, and until when it is by that clock now.
    """

    keeps_house = True
    on_tables = True

    def __init__(self, owner: str, lease_ms: int, claims: Sequence[Claim] = ()) -> None:
        self._owner = owner
        self._lease_ms = lease_ms
        self._claims = claims
        self._process = this_process()

    def run(self, unit: UnitOfWork) -> tuple[bool, int]:
        until_ms = unit.now_ms + self._lease_ms
        owners = unit.session.owners()
        kept = any(o[0] == self._owner and o[1] > unit.now_ms for o in owners)
        ended = [
            owner
            for owner, its_until_ms, process in owners
            if owner != self._owner
            and (its_until_ms < unit.now_ms - self._lease_ms or is_gone(process))
        ]
        if ended:
            unit.session.forget_owners(ended)
        unit.session.head()
        unit.session.renew_owner((self._owner, until_ms, self._process))
        for claim in self._claims:
            row = row_of(claim.id, claim.slot.keep(self._lease_ms, unit.now_ms))
            unit.session.replace_alarm(claim.job_state, row)
        return kept, until_ms


class FreeObjects(Work):
    """Lets go of objects, so that any process may have them."""

    keeps_house = True
    on_tables = True

    def __init__(self, object_ids: Sequence[str], owner: str) -> None:
        self._object_ids = object_ids
        self._owner = owner

    def run(self, unit: UnitOfWork) -> None:
        unit.session.free_objects(self._object_ids, self._owner)


class LeaveObjects(Work):
    """Ends an owner: all its objects are free."""

    keeps_house = True
    on_tables = True

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def run(self, unit: UnitOfWork) -> None:
        unit.session.forget_owners([self._owner])


class KeepAttempts(Work):
    """Keeps how attempts ended that left nothing else to write."""

    appends = False
    keeps_house = True

    def __init__(self, attempts: Sequence[AttemptFacts]) -> None:
        self._attempts = attempts

    def run(self, unit: UnitOfWork) -> None:
        unit.keep_attempts(self._attempts)


class SlowDownAlarm(Work):
    """The handler set a new alarm, for `next_at_ms`, and failed: counts that, and sees to
    it that doing so again and again gets slower. Returns the Attempt."""

    keeps_house = True

    def __init__(
        self, claim: Claim, next_at_ms: int | None, error: Exception, began_at_ms: int
    ) -> None:
        self._claim = claim
        self._next_at_ms = next_at_ms
        self._error = error
        self._began_at_ms = began_at_ms

    def run(self, unit: UnitOfWork) -> Attempt:
        if self._next_at_ms is not None:
            self._slow_down(unit, self._next_at_ms)
        began_at_ms = self._began_at_ms
        attempt = Attempt(self._claim, "superseded", unit.now_ms, self._error, began_at_ms)
        unit.keep_attempts([attempt.facts])
        return attempt

    def _slow_down(self, unit: UnitOfWork, next_at_ms: int) -> None:
        row = row_of(self._claim.id, self._claim.slot.supersede(next_at_ms, unit.now_ms))
        expected = encode(AlarmSlot(next_at_ms))
        unit.after_flush(lambda: unit.session.replace_alarm(expected, row))
