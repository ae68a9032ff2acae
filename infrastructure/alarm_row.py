"""A slot's row in the table of alarms.

`next_run_time` says when to look; `job_state` has the rest as small versioned JSON. The
encoded bytes double as a compare-and-swap key: a claim's token is unique, so a row that
still has the bytes of a claim has not been touched since. Never pickle: nothing in the
database can run code.
"""

import msgspec

from reservation_expiry.domain.alarm_slot import AlarmSlot, PlannedSlot, set_to
from reservation_expiry.infrastructure.stores.row_types import AlarmRow


class _State(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="v",
    tag=1,
):
    """Written as {"v":1,"scheduled_time":...} before the first attempt."""

    scheduled_time: int
    attempts: int = 0
    token: str | None = None
    superseded: int = 0
    waits: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_State).decode


class UnreadableAlarm(ValueError):
    """The state is not JSON of a version we know. The row is parked, never deleted."""


def encode(slot: AlarmSlot) -> bytes:
    return _encode(
        _State(slot.scheduled_time, slot.attempts, slot.token, slot.superseded, slot.waits)
    )


def decode(job_state: bytes | str) -> AlarmSlot:
    """Raises UnreadableAlarm for anything that `encode` did not write."""
    try:
        found = _decode(job_state)
    except (msgspec.MsgspecError, TypeError) as error:
        raise UnreadableAlarm(str(error)) from error
    return AlarmSlot(
        found.scheduled_time, found.attempts, found.token, found.superseded, found.waits
    )


def row_of(alarm_id: str, planned: PlannedSlot) -> AlarmRow:
    """The row of a slot as it is planned."""
    slot, look_at_ms = planned
    return alarm_id, None if look_at_ms is None else look_at_ms / 1000, encode(slot)


def row_set_to(alarm_id: str, at_ms: int) -> AlarmRow:
    """The row of an alarm before its first attempt."""
    return row_of(alarm_id, set_to(at_ms))
