"""Objects: the log against what was projected from it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from domain.durable_object import StoredObject
from infrastructure.comparison import Difference, LogRow, alarm_problem
from infrastructure.errors import UndecodableEvent
from infrastructure.event_mapper import EventMapper
from infrastructure.objects.object_projections import encode_snapshot
from infrastructure.projections import AlarmRow, ObjectRow, SnapshotRow, alarm_row


@dataclass(slots=True)
class ObjectChunk:
    """A range of ids: their events in order, and the rows projected from them.

    `last_id` is where the next chunk goes on, None after the last one.
    """

    last_id: str | None
    events: Iterator[LogRow]
    objects: dict[str, ObjectRow]
    alarms: dict[str, AlarmRow]
    snapshots: dict[str, SnapshotRow]


@dataclass(slots=True)
class ObjectsFound:
    """What comparing a chunk brought: the differences, and the rows that would mend them."""

    aggregates: int = 0
    events: int = 0
    differences: list[Difference] = field(default_factory=list)
    put_objects: list[ObjectRow] = field(default_factory=list)
    delete_objects: list[str] = field(default_factory=list)
    put_alarms: list[AlarmRow] = field(default_factory=list)
    delete_alarms: list[str] = field(default_factory=list)
    delete_snapshots: list[str] = field(default_factory=list)

    @property
    def rows_to_mend(self) -> int:
        return (
            len(self.put_objects)
            + len(self.delete_objects)
            + len(self.put_alarms)
            + len(self.delete_alarms)
            + len(self.delete_snapshots)
        )

    def note(self, object_id: str, position: int | None, problem: str) -> None:
        self.differences.append(Difference(object_id, position, problem))


def compare_objects(chunk: ObjectChunk, mapper: EventMapper) -> ObjectsFound:
    """Replays the chunk's objects and holds their rows against the result."""
    found = ObjectsFound()
    for object_id, history in groupby(chunk.events, key=itemgetter(0)):
        found.aggregates += 1
        row = chunk.objects.pop(object_id, None)
        alarm = chunk.alarms.pop(object_id, None)
        snapshot = chunk.snapshots.pop(object_id, None)
        state, position = _replay(history, mapper, snapshot, found)
        if state is not None:
            _compare_row(found, object_id, state, position, row)
            _compare_alarm(found, object_id, state, position, alarm)
    for object_id in chunk.objects:
        found.delete_objects.append(object_id)
        found.note(object_id, None, "there is a row of it, and nothing in the log")
    for object_id in chunk.alarms:
        found.delete_alarms.append(object_id)
        found.note(object_id, None, "an alarm of nothing in the log")
    for object_id in chunk.snapshots:
        found.delete_snapshots.append(object_id)
        found.note(object_id, None, "a snapshot of nothing in the log")
    return found


def _replay(
    history: Iterator[LogRow],
    mapper: EventMapper,
    snapshot: SnapshotRow | None,
    found: ObjectsFound,
) -> tuple[StoredObject | None, int]:
    """The state and the last position; the snapshot is compared on the way."""
    state, position, snapshot_seen = StoredObject(), 0, snapshot is None
    for object_id, version, topic, data, position in history:
        found.events += 1
        if version != state.version + 1:
            found.note(object_id, position, f"has version {version}, not {state.version + 1}")
        try:
            event = mapper.decode(object_id, version, topic, data)
        except UndecodableEvent as error:
            found.note(object_id, position, str(error))
            found.events += sum(1 for _ in history)
            return None, position
        broken = state.broken_rule(event)
        if broken is not None:
            found.note(object_id, position, broken)
        state.apply(event)
        if snapshot is not None and snapshot[1] == version:
            snapshot_seen = snapshot[2] == encode_snapshot(state)
    if not snapshot_seen:
        found.delete_snapshots.append(snapshot[0])
        found.note(snapshot[0], position, f"its snapshot of version {snapshot[1]} is wrong")
    return state, position


def _compare_row(
    found: ObjectsFound, object_id: str, state: StoredObject, position: int, row: ObjectRow | None
) -> None:
    right = (object_id, state.version, state.alarm_at_ms)
    if row != right:
        found.put_objects.append(right)
        found.note(object_id, position, f"its row is {row and row[1:]}, the log says {right[1:]}")


def _compare_alarm(
    found: ObjectsFound, object_id: str, state: StoredObject, position: int, row: AlarmRow | None
) -> None:
    if state.alarm_at_ms is None:
        if row is not None:
            found.delete_alarms.append(object_id)
            found.note(object_id, position, "has an alarm that it has not set")
        return
    problem = (
        "has set an alarm, and there is none"
        if row is None
        else alarm_problem(row, state.alarm_at_ms)
    )
    if problem is not None:
        found.put_alarms.append(alarm_row(object_id, state.alarm_at_ms))
        found.note(object_id, position, problem)
