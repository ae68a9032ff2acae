"""One JSON line per attempt at an alarm, on standard output.

Lines of a batch are handed over together (`output.py`). A reader that stands still or went
away costs the lines, never an alarm: the attempt is in the database by then.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from reservation_expiry.domain.ids import parse_object_id, reservation_name
from reservation_expiry.infrastructure.alarms.attempt import Attempt, said_by
from reservation_expiry.infrastructure.machine.output import standard_output
from reservation_expiry.infrastructure.stores.sql.alarm_pages import RESERVATION


class Lines(Protocol):
    """Takes whole lines, and never makes anybody wait for what becomes of them."""

    def write(self, lines: bytes, /) -> object: ...


class AlarmLog:
    """Writes to `lines`, standard output unless told otherwise."""

    def __init__(self, lines: Lines | None = None) -> None:
        self._lines = lines or standard_output()
        self._encode = msgspec.json.Encoder().encode

    def write(self, attempts: Iterable[Attempt]) -> None:
        self._lines.write(b"".join(map(self._line, attempts)))

    def _line(self, attempt: Attempt) -> bytes:
        claim = attempt.claim
        identity = parse_object_id(claim.id)
        retry_count = claim.retry_count
        line: dict[str, object]
        if identity is None:
            line = {
                "event": "reservation-alarm",
                "eventType": "alarm",
                "entrypoint": RESERVATION,
                "reservationId": reservation_name(claim.id),
            }
        else:
            line = {
                "event": "object-alarm",
                "eventType": "alarm",
                "entrypoint": identity.class_name,
                "objectName": identity.name,
            }
        line |= {
            "scheduledTime": claim.slot.scheduled_time,
            "isRetry": retry_count > 0,
            "retryCount": retry_count,
            "outcome": attempt.outcome,
            "latenessMs": attempt.lateness_ms,
        }
        if claim.cut_off:
            line["lapsed"] = True  # it was in hand before, and not settled in time
        if attempt.duration_ms is not None:
            line["durationMs"] = attempt.duration_ms
        if attempt.error is not None:
            line["error"] = said_by(attempt.error)
        return self._encode(line) + b"\n"
