"""Log lines: text for people, or JSON for machines, on standard error."""

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from reservation_expiry.api.request_ids import request_id
from reservation_expiry.infrastructure.machine import output
from reservation_expiry.infrastructure.machine.redaction import redacted, without_secrets


class _Lines(logging.Formatter):
    def formatException(self, ei: Any) -> str:
        """Line by line: what is taken out of one is no reason to lose the others."""
        return "\n".join(map(redacted, super().formatException(ei).splitlines()))


class TextLines(_Lines):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line, of = super().formatMessage(record), request_id()
        return line if of is None else f"{line} [request {of}]"


class JsonLines(_Lines):
    """One document a line, exceptions and all."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        of = request_id()
        if of is not None:
            line["requestId"] = of
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure_logging(level: str, format: str = "text") -> None:
    """Everything but the alarm log goes to standard error."""
    output.install()
    handler = output.LineHandler(output.standard_error())
    handler.addFilter(without_secrets)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
