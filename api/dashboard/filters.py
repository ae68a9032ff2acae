"""How the pages write times, and what things are called."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from reservation_expiry.api.rendering import render_attempt
from reservation_expiry.domain.ids import named

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
SHOWN_CHARACTERS = 200
_INSTANT = re.compile("[0-9]{12,14}")
_YEAR_10000_MS = 253_402_300_800_000


def utc(ms: int) -> str:
    """2026-12-01 14:20:03.123, in UTC; the number itself where there is no such date."""
    if not 0 <= ms < _YEAR_10000_MS:
        return str(ms)
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03}"


def iso(ms: int) -> str:
    """For machines: what a `datetime` attribute takes."""
    return utc(ms).replace(" ", "T") + "Z"


def distance(ms: int, now_ms: int) -> str:
    """`in 5 min`, `3 s ago`: the largest unit, as the script writes it too."""
    seconds = abs(ms - now_ms) // 1000
    size, unit = next(((s, u) for s, u in _UNITS if seconds >= s), (1, "s"))
    text = f"{seconds // size} {unit}"
    return f"in {text}" if ms > now_ms else f"{text} ago"


def grouped(number: int) -> str:
    return f"{number:,}"


def told(detail: str) -> str:
    """A sentence with its instants as people read them."""
    return _INSTANT.sub(lambda found: utc(int(found[0])), detail)


def shortened(data: object) -> str:
    """An event's data on one line."""
    return beginning_of(msgspec.json.encode(data).decode())


def beginning_of(text: str) -> str:
    """As much of it as a cell of a table has room for."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def page_of(originator_id: str) -> dict[str, str]:
    """What `url_for` needs for the page of an id in the log; empty if it has none."""
    shown = named(originator_id)
    if "objectName" in shown:
        return {
            "endpoint": "dashboard.one_object",
            "class_name": shown["className"],
            "name": shown["objectName"],
        }
    if "reservationId" in shown:
        return {"endpoint": "dashboard.reservation", "name": shown["reservationId"]}
    return {}


FILTERS: Mapping[str, Callable[..., Any]] = {
    "utc": utc,
    "iso": iso,
    "distance": distance,
    "grouped": grouped,
    "page_of": page_of,
    "shortened": shortened,
    "told": told,
    "attempt": render_attempt,
}
