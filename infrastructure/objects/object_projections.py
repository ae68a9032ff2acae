"""An object's storage as it was once, so that loading it needs no more than the rest."""

from collections.abc import Iterable, Mapping, MutableMapping

import msgspec

from domain.durable_object import ObjectEvent, StorageWritten, StoredObject
from infrastructure.errors import UndecodableEvent

SNAPSHOT_EVERY = 500
ROW_BYTES = 100  # of an event's row, besides what it says


class SnapshotCadence:
    """When a snapshot is due: after SNAPSHOT_EVERY events, or as many as there are keys if
    those are more, that have as many bytes together as the storage.

    So writing snapshots costs no more than writing the events did, however large a value is
    that lies there and is not touched.
    """

    __slots__ = ("_bytes", "_enough", "_version")

    def __init__(self, version: int, bytes_since: int) -> None:
        self._version = version
        self._bytes = bytes_since
        self._enough = 0  # the storage's bytes when they were last counted

    def wrote(self, events: Iterable[ObjectEvent]) -> None:
        for event in events:
            self._bytes += ROW_BYTES
            if type(event) is StorageWritten:
                for key, value in event.puts.items():
                    self._bytes += len(key) + len(value)

    def is_due(self, version: int, storage: Mapping[str, bytes]) -> bool:
        since = version - self._version
        if since < max(SNAPSHOT_EVERY, len(storage)) or self._bytes < self._enough:
            return False
        self._enough = sum(len(key) + len(value) for key, value in storage.items())
        return self._bytes >= self._enough

    def was_taken(self, version: int) -> None:
        self._version, self._bytes, self._enough = version, 0, 0


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    alarm: int | None
    storage: dict[str, msgspec.Raw]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Snapshot).decode


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
