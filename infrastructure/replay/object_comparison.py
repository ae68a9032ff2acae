"""Objects: the log against what was projected from it."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from reservation_expiry.domain.durable_object import StoredObject
from reservation_expiry.infrastructure.errors import UndecodableEvent
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.object_checkpoints import encode_checkpoint
from reservation_expiry.infrastructure.replay.comparison import Found, compare_alarm
from reservation_expiry.infrastructure.stores.row_types import (
    LogRow,
    ObjectChunk,
    ObjectRow,
    SnapshotRow,
)

CHUNK_OBJECTS = 100  # at once: each comes with its snapshot


def compare_objects(chunk: ObjectChunk, mapper: EventMapper) -> Found:
    """Replays the chunk's objects and holds their rows against the result."""
    found = Found()
    for object_id, history in groupby(chunk.events, key=itemgetter(0)):
        found.aggregates += 1
        row = chunk.objects.pop(object_id, None)
        alarm = chunk.alarms.pop(object_id, None)
        snapshot = chunk.snapshots.pop(object_id, None)
        state, position = _replay(history, mapper, snapshot, found)
        if state is not None:
            _compare_row(found, object_id, state, position, row)
            compare_alarm(
                found,
                object_id,
                position,
                state.alarm_at_ms,
                alarm,
                if_missing="has set an alarm, and there is none",
                if_left_over="has an alarm that it has not set",
            )
    for object_id in chunk.objects:
        found.delete_rows.append(object_id)
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
    found: Found,
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
            snapshot_seen = snapshot[2] == encode_checkpoint(state)
    if snapshot is not None and not snapshot_seen:
        found.delete_snapshots.append(snapshot[0])
        found.note(snapshot[0], position, f"its snapshot of version {snapshot[1]} is wrong")
    return state, position


def _compare_row(
    found: Found, object_id: str, state: StoredObject, position: int, row: ObjectRow | None
) -> None:
    right = (object_id, state.version, state.alarm_at_ms)
    if row != right:
        found.put_rows.append(right)
        found.note(object_id, position, f"its row is {row and row[1:]}, the log says {right[1:]}")
