"""Tables and progress bars, for people at a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

PIPE_WIDTH = 160  # columns of a table where there is no terminal to ask


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on a terminal; in a pipe the same, wide enough not to be cut."""
    terminal = sys.stdout.isatty()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    _Console(width=None if terminal else PIPE_WIDTH, highlight=False).print(table)


class _Console(Console):
    """rich's, which ends the process itself when nobody reads its output."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal; counts up by what it is told."""
    console = _Console(stderr=True)
    bar = Progress(
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.completed:,.0f} events"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)
