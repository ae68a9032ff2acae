"""Charts as SVG shapes: where each bar stands, in the units of a view box.

Templates draw them; the figures stand beside each chart in a table, for those who cannot see
it. Colours are the style sheet's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reservation_expiry.infrastructure.stores.sql.activity import LATENESS_BELOW_MS, MINUTE_MS

WIDTH, HEIGHT = 600, 160
_GAP = 2.0


class Bar(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str


@dataclass(frozen=True)
class Chart:
    """Bars, and the line that they stand on and hang from."""

    bars: Sequence[Bar]
    baseline: float
    most: int
    width: int = WIDTH
    height: int = HEIGHT


class Minute(NamedTuple):
    """What happened in one minute. `at_ms` is when it began."""

    at_ms: int
    holds: int
    endings: int


def activity_chart(minutes: Sequence[Minute]) -> Chart:
    """Holds stand on the line, endings hang from it, minute by minute."""
    most = max((max(m.holds, m.endings) for m in minutes), default=0)
    middle, scale = HEIGHT / 2, (HEIGHT / 2 - 4) / max(most, 1)
    step = WIDTH / max(len(minutes), 1)
    bars = []
    for number, minute in enumerate(minutes):
        x, width = number * step + _GAP / 2, step - _GAP
        up, down = minute.holds * scale, minute.endings * scale
        if minute.holds:
            bars.append(Bar(x, middle - up, width, up, "holds", f"{minute.holds} held"))
        if minute.endings:
            bars.append(Bar(x, middle, width, down, "endings", f"{minute.endings} ended"))
    return Chart(bars, middle, most)


def lateness_chart(counts: Sequence[int]) -> Chart:
    """A bar for each bucket of lateness."""
    most = max(counts, default=0)
    step = WIDTH / max(len(counts), 1)
    bars = []
    for number, (count, label) in enumerate(zip(counts, lateness_labels(), strict=True)):
        height = count * (HEIGHT - 24) / max(most, 1)
        x = number * step + _GAP
        bars.append(
            Bar(x, HEIGHT - height, step - 2 * _GAP, height, "lateness", f"{label}: {count}")
        )
    return Chart(bars, HEIGHT, most)


def lateness_labels() -> list[str]:
    """What the buckets are called."""
    bounds = [_duration(bound) for bound in LATENESS_BELOW_MS]
    return [f"under {bounds[0]}", *(f"under {b}" for b in bounds[1:]), f"{bounds[-1]} and more"]


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms // 1_000} s"


def minutes_of(
    found: Sequence[tuple[int, str, int]], statuses: Mapping[str, str], now_ms: int, count: int
) -> list[Minute]:
    """The newest `count` minutes, from (minute, topic, how many)."""
    last = now_ms // MINUTE_MS
    holds: dict[int, int] = dict.fromkeys(range(last - count + 1, last + 1), 0)
    endings = dict(holds)
    for minute, topic, number in found:
        status = statuses.get(topic)
        if status is None or minute not in holds:
            continue
        (holds if status == "held" else endings)[minute] += number
    return [Minute(m * MINUTE_MS, holds[m], endings[m]) for m in holds]
