"""What an alarm row remembers, as small versioned JSON.

The row's `next_run_time` says when to look; the state says what the alarm is for:
`scheduled_time` (what AlarmScheduled said), `attempts` begun so far, and the `token` of
the claim that is working on it. The encoded bytes double as a compare-and-swap key: a
claim's token is unique, so a row that still has the bytes of a claim has not been
touched since. Never pickle: nothing in the database can run code.
"""

import msgspec


class AlarmState(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="v",
    tag=1,
):
    """Written as {"v":1,"scheduled_time":...} before the first attempt.

    `superseded` counts the alarms before this one whose handler set the next and failed;
    `waits` says that it was given back to be looked at later than it was set for.
    """

    scheduled_time: int
    attempts: int = 0
    token: str | None = None
    superseded: int = 0
    waits: bool = False


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AlarmState)


class UnreadableAlarm(ValueError):
    """The state is not JSON of a version we know. The row is parked, never deleted."""


def decode(job_state: bytes | str) -> AlarmState:
    """Raises UnreadableAlarm for anything that `encode` did not write."""
    try:
        return _decoder.decode(job_state)
    except (msgspec.MsgspecError, TypeError) as error:
        raise UnreadableAlarm(str(error)) from error
