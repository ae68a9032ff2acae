"""An object's storage as it was once, in bytes that are the same for the same state."""

from collections.abc import MutableMapping

import msgspec

from reservation_expiry.domain.durable_object import StoredObject
from reservation_expiry.infrastructure.errors import UndecodableEvent


class _Checkpoint(msgspec.Struct, forbid_unknown_fields=True):
    alarm: int | None
    storage: dict[str, msgspec.Raw]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Checkpoint).decode


def encode_checkpoint(state: StoredObject) -> bytes:
    """The same bytes for the same state."""
    storage = {key: msgspec.Raw(state.storage[key]) for key in sorted(state.storage)}
    return _encode(_Checkpoint(state.alarm_at_ms, storage))


def decode_checkpoint(
    object_id: str, version: int, data: bytes, into: MutableMapping[str, bytes]
) -> StoredObject:
    """The state, with `into` as its storage. Raises UndecodableEvent."""
    try:
        found = _decode(data)
    except msgspec.MsgspecError as error:
        raise UndecodableEvent(f"the snapshot of {object_id} cannot be read: {error}") from error
    into.update((key, bytes(value)) for key, value in found.storage.items())
    return StoredObject(version, found.alarm, into)
