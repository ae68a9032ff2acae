"""An object's storage as it was once, so that loading it needs no more than the rest."""

from collections.abc import MutableMapping

import msgspec

from domain.durable_object import StoredObject
from infrastructure.errors import UndecodableEvent

# A snapshot is due after this many events, or as many as there are keys if those are more:
# so writing snapshots costs an event no more than the events before it did.
SNAPSHOT_EVERY = 500


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    alarm: int | None
    storage: dict[str, msgspec.Raw]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Snapshot).decode


def is_snapshot_due(events_since: int, keys: int) -> bool:
    return events_since >= max(SNAPSHOT_EVERY, keys)


def encode_snapshot(state: StoredObject) -> bytes:
    """The same bytes for the same state."""
    storage = {key: msgspec.Raw(state.storage[key]) for key in sorted(state.storage)}
    return _encode(_Snapshot(state.alarm_at_ms, storage))


def decode_snapshot(
    object_id: str, version: int, data: bytes, into: MutableMapping[str, bytes]
) -> StoredObject:
    """The state, with `into` as its storage. Raises UndecodableEvent."""
    try:
        found = _decode(data)
    except msgspec.MsgspecError as error:
        raise UndecodableEvent(f"the snapshot of {object_id} cannot be read: {error}") from error
    into.update((key, bytes(value)) for key, value in found.storage.items())
    return StoredObject(version, found.alarm, into)
