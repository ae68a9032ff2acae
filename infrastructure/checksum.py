"""The checksum of an event: a chain over the whole log.

Each covers the event's row and the checksum before it, so the checksum of the last
event is a digest of the log: two logs with the same one hold the same events in the
same order. It finds damage and careless hands; it is not a signature.
"""

from hashlib import blake2b

DIGEST_BYTES = 16
GENESIS = b""  # what stands before the first event


def chain(
    previous: bytes,
    position: int,
    originator_id: str,
    originator_version: int,
    topic: str,
    recorded_at_ms: int,
    state: bytes,
) -> bytes:
    """The checksum of the event at `position`, `previous` being the one before it."""
    head = f"{position}\0{originator_id}\0{originator_version}\0{topic}\0{recorded_at_ms}\0"
    return blake2b(previous + head.encode() + state, digest_size=DIGEST_BYTES).digest()
