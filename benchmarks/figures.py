"""What a run found: figures, with their bars, as a table and as JSON."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Bar:
    """What must be reached, and what is aimed at. `low` true: smaller is better.

    `of` says what is held against it: "ratio" to the peer, "ours", or by how much the
    "change" from the least to the most of ours is.
    """

    must: float
    stretch: float | None = None
    of: str = "ratio"
    low: bool = False

    def word(self, value: float | None) -> str:
        if value is None:
            return "not measured"
        if self.stretch is not None and self._reaches(value, self.stretch):
            return "stretch"
        return "met" if self._reaches(value, self.must) else "MISSED"

    def _reaches(self, value: float, limit: float) -> bool:
        return value <= limit if self.low else value >= limit

    def __str__(self) -> str:
        sign, unit = ("<=" if self.low else ">="), {"ratio": "x"}.get(self.of, "")
        if self.of == "change":
            return f"changes {sign} {self.must:.0%}"
        aim = "" if self.stretch is None else f" ({self.stretch:g}{unit})"
        return f"{sign} {self.must:g}{unit}{aim}"


@dataclass
class Figure:
    """One row. Each round's ratio is of that round; `ratio` is their median."""

    what: str
    unit: str
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    peer_name: str = ""
    bar: Bar | None = None
    note: str = ""

    @property
    def ours_median(self) -> float | None:
        return median(self.ours) if self.ours else None

    @property
    def peer_median(self) -> float | None:
        return median(self.peer) if self.peer else None

    @property
    def ratio(self) -> float | None:
        pairs = [o / p for o, p in zip(self.ours, self.peer, strict=False) if p]
        return median(pairs) if pairs else None

    @property
    def change(self) -> float | None:
        return max(self.ours) / min(self.ours) - 1 if self.ours else None

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        held_against = {"ratio": self.ratio, "ours": self.ours_median, "change": self.change}
        return self.bar.word(held_against[self.bar.of])

    def as_json(self) -> dict:
        found = asdict(self)
        found["bar"] = None if self.bar is None else str(self.bar)
        return found | {
            "oursMedian": self.ours_median,
            "peerMedian": self.peer_median,
            "ratio": self.ratio,
            "verdict": self.verdict,
        }


def print_table(figures: Iterable[Figure]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("WHAT", "UNIT", "OURS", "PEER", "", "RATIO", "BAR (STRETCH)", "", "NOTE"):
        table.add_column(heading, overflow="fold")
    for figure in figures:
        table.add_row(
            figure.what,
            figure.unit,
            _number(figure.ours_median),
            _number(figure.peer_median),
            figure.peer_name,
            "" if figure.ratio is None else f"{figure.ratio:.1f}x",
            "" if figure.bar is None else str(figure.bar),
            figure.verdict,
            figure.note,
        )
    Console(width=None if Console().is_terminal else 180, highlight=False).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
