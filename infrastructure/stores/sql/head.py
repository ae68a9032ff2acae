"""Whether a log still has the newest events that were ever committed to it."""

import secrets
from typing import NamedTuple

from reservation_expiry.infrastructure.errors import DamagedLog, StoreDamaged
from reservation_expiry.infrastructure.stores.sql.rows import Reader
from reservation_expiry.infrastructure.stores.sql.typed import HEAD, LIFE, checked

_HEAD = "SELECT position, checksum, projected_position FROM log_head"
_ENDS = "SELECT position, (SELECT coalesce(max(position), 0) FROM events) FROM log_head"


_LIFE = "SELECT log_id, tombstone FROM log_head"


class Life(NamedTuple):
    """Which log it is; and of one that was deleted, what was, as JSON."""

    log_id: str
    tombstone: str | None


class Head(NamedTuple):
    """The newest committed position, its event's checksum, and the position that the
    projections stand at."""

    position: int
    checksum: bytes
    projected_position: int


def read_head(reader: Reader) -> Head:
    """Raises DamagedLog if there is none, or not such a one."""
    try:
        (row,) = checked("log_head", reader.all(_HEAD), HEAD)
    except (StoreDamaged, ValueError) as error:
        raise DamagedLog("the log has lost its head. Restore a backup") from error
    return Head(*row)


def new_log_id() -> str:
    """16 hexadecimal digits."""
    return secrets.token_hex(8)


def read_life(reader: Reader) -> Life:
    """Of a database of the newest schema. Raises DamagedLog."""
    try:
        (row,) = checked("log_head", reader.all(_LIFE), LIFE)
    except (StoreDamaged, ValueError) as error:
        raise DamagedLog("the log has lost its head. Restore a backup") from error
    return Life(*row)


def check_head(reader: Reader, address: object) -> None:
    """Raises DamagedLog if the newest committed events are missing from the log."""
    read_head(reader)
    # In one statement, so of one commit: others may be writing meanwhile.
    committed, last = reader.all(_ENDS)[0]
    if last < committed:
        missing = (
            f"events {last + 1} to {committed} are"
            if committed > last + 1
            else (f"event {committed} is")
        )
        raise DamagedLog(
            f"the log of {address} ends at position {last}, but position {committed} was "
            f"committed: {missing} missing. Restore a backup"
        )
    if last > committed:
        raise DamagedLog(
            f"the log of {address} has events up to position {last}, but only "
            f"{committed} were committed: something else has written to it"
        )
