"""Draws how the pace changes with the number of open holds (docs/growth.svg)."""

from collections.abc import Iterable
from pathlib import Path

import pygal

from benchmarks.figures import Figure


def draw_growth(figures: Iterable[Figure], sizes: tuple[int, ...], target: Path) -> None:
    """One line a figure whose `ours` are its values at `sizes`, in percent of the first."""
    chart = pygal.Line(
        title="Pace by open holds, in percent of that at the fewest",
        x_title="open holds",
        legend_at_bottom=True,
        range=(0, 150),
        height=360,
        js=(),
        style=pygal.style.CleanStyle,
    )
    chart.x_labels = [f"{size:,}" for size in sizes]
    for figure in figures:
        if len(figure.ours) == len(sizes) and " open holds" in figure.what:
            first = figure.ours[0]
            chart.add(figure.what.split(" at ")[0], [100 * v / first for v in figure.ours])
    chart.render_to_file(str(target))
