"""When an object's storage is written down whole, so that loading it needs no more than that
and what came after it."""

from collections.abc import Iterable, Mapping

from reservation_expiry.domain.durable_object import ObjectEvent, StorageWritten

CHECKPOINT_EVERY = 500
ROW_BYTES = 100  # of an event's row, besides what it says


class CheckpointCadence:
    """When a checkpoint is due: after CHECKPOINT_EVERY events, or as many as there are keys if
    those are more, that have as many bytes together as the storage.

    So writing checkpoints costs no more than writing the events did, however large a value is
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
        if since < max(CHECKPOINT_EVERY, len(storage)) or self._bytes < self._enough:
            return False
        self._enough = sum(len(key) + len(value) for key, value in storage.items())
        return self._bytes >= self._enough

    def was_taken(self, version: int) -> None:
        self._version, self._bytes, self._enough = version, 0, 0
