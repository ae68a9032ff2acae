"""Whether a log still has the newest events that were ever committed to it."""

from infrastructure.errors import DamagedLog
from infrastructure.sql.queries import Reader


def check_head(reader: Reader, address: object) -> None:
    """Raises DamagedLog if the newest committed events are missing from the log."""
    heads = reader.all(
        "SELECT position, (SELECT coalesce(max(position), 0) FROM events) FROM log_head"
    )
    if not heads:
        raise DamagedLog(f"the log of {address} has lost its head. Restore a backup")
    committed, last = heads[0]
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
