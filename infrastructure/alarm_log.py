"""One JSON line per attempt at an alarm, on standard output.

Lines of a batch go out in one write. A reader that went away costs the lines, never an
alarm: the attempt is in the database by then.
"""

import logging
import sys
from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from domain.durable_object import parse_object_id
from domain.names import named
from infrastructure.alarm_commands import Attempt

ENTRYPOINT = "Reservation"

logger = logging.getLogger(__name__)


class AlarmLog:
    """Writes to `stream`, standard output unless told otherwise."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream
        self._encode = msgspec.json.Encoder().encode

    def write(self, attempts: Iterable[Attempt]) -> None:
        lines = b"".join(map(self._line, attempts))
        try:
            stream = self._stream or sys.stdout.buffer
            stream.write(lines)
            stream.flush()
        except (OSError, ValueError, AttributeError) as error:  # gone, closed, or none at all
            logger.warning("alarm log lines were lost: %s", error)

    def _line(self, attempt: Attempt) -> bytes:
        claim = attempt.claim
        identity = parse_object_id(claim.id)
        line = {
            "event": "reservation-alarm" if identity is None else "object-alarm",
            "eventType": "alarm",
            "entrypoint": ENTRYPOINT if identity is None else identity.class_name,
            **(named(claim.id) if identity is None else {"objectName": identity.name}),
            "scheduledTime": claim.state.scheduled_time,
            "isRetry": claim.retry_count > 0,
            "retryCount": claim.retry_count,
            "outcome": attempt.outcome,
            "latenessMs": attempt.lateness_ms,
        }
        if attempt.began_at_ms is not None:
            line["durationMs"] = attempt.at_ms - attempt.began_at_ms
        if attempt.error is not None:
            line["error"] = f"{type(attempt.error).__name__}: {attempt.error}"
        return self._encode(line) + b"\n"
