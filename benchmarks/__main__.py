"""Runs the benchmarks, prints the table, writes the JSON.

python -m benchmarks [--quick | --full | --smoke] [--only WORD] [--json FILE]
    [--database URL] [--before FOLDER] [--field FOLDER]
"""

import json
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.alarms import drains, lateness
from benchmarks.bad_clients import bad_clients
from benchmarks.before import before as beside
from benchmarks.field import field as beside_others
from benchmarks.figures import Figure, print_table
from benchmarks.holds import holds
from benchmarks.limits import limits
from benchmarks.load import MissingTool, generator
from benchmarks.objects import objects
from benchmarks.plot import draw_growth
from benchmarks.postgres import postgres
from benchmarks.scenarios import requests_per_second
from benchmarks.schedules import schedules
from benchmarks.seen import pages, streams
from benchmarks.servers import cpu_count
from benchmarks.size import growth, open_holds, replay_tools
from benchmarks.starts import starts

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path, resolve_path=True)


@dataclass(frozen=True)
class Scale:
    """How much of everything a run does."""

    rounds: int
    seconds: float
    spread: int
    drains: tuple[int, ...]
    peer_seconds: float
    late_over: int
    bursts: tuple[int, ...]
    sizes: tuple[int, ...]
    logs: tuple[int, ...]
    log_holds: int
    objects: tuple[int, int] = (5_000, 500)
    schedules: tuple[tuple[int, ...], int, int] = ((1_000, 100_000), 1_000, 60)
    nodes: tuple[int, ...] = (3,)  # on PostgreSQL, besides one and two
    bad_clients: tuple[int, float] = (1_000, 5.0)
    idle_connections: int = 5_000
    streams: int = 1_000


SCALES = {
    "smoke": Scale(
        1, 0.2, 50, (200,), 2, 1, (50,), (200,), (400,), 500, (20, 10), ((30,), 20, 1), (),
        (20, 0.2), 20, 20,
    ),
    "quick": Scale(
        1, 2, 2_000, (20_000,), 8, 5, (500,), (1_000, 20_000), (10_000, 100_000), 50_000,
        (1_000, 200), ((1_000, 10_000), 500, 5), (),
        (1_000, 1.0),
    ),
    "usual": Scale(
        3, 5, 100_000, (20_000, 200_000), 30, 20, (500, 10_000),
        (1_000, 10_000, 100_000, 1_000_000), (100_000, 1_000_000), 500_000,
    ),
    "full": Scale(
        3, 8, 100_000, (20_000, 200_000), 60, 20, (500, 10_000),
        (1_000, 10_000, 100_000, 1_000_000), (100_000, 1_000_000, 10_000_000), 5_000_000,
    ),
}  # fmt: skip


@click.command()
@click.option("--quick", "scale", flag_value="quick", help="Under two minutes.")
@click.option("--full", "scale", flag_value="full", help="A log of ten million events too.")
@click.option("--smoke", "scale", flag_value="smoke", help="Everything, tiny: does it run?")
@click.option("--only", help="Only the groups whose name has this word.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures.")
@click.option("--database", help="postgresql:// URL to measure on instead of a server of ours.")
@click.option("--before", type=FOLDER, help="Another checkout, installed, to be measured beside.")
@click.option("--field", type=FOLDER, help="Other tools' folder (benchmarks/field.py).")
def main(scale: str | None, only: str | None, json_file: Path | None, **others: Any) -> None:
    """Measure this service beside its peers."""
    started = time.time()
    figures: list[Figure] = []
    chosen = SCALES[scale or "usual"]
    for name, group in groups(chosen, figures, **others).items():
        if only is None or only in name:
            click.echo(f"{name} ...", err=True)
            try:
                figures += group()
            except MissingTool as missing:
                figures.append(Figure(name, "", note=f"not measured: {missing}"))
    print_table(figures)
    click.echo(f"{_machine()}; {time.time() - started:.0f} s in all")
    if json_file is not None:
        found = {"machine": _machine(), "figures": [f.as_json() for f in figures]}
        json_file.write_text(json.dumps(found, indent=1) + "\n")
        if only is None or only in "growth":
            draw_growth(figures, chosen.sizes, json_file.with_name("growth.svg"))
    sys.exit(any(figure.verdict == "MISSED" for figure in figures))


def groups(
    scale: Scale,
    figures: list[Figure],
    database: str | None = None,
    before: Path | None = None,
    field: Path | None = None,
) -> dict[str, Callable[[], Iterator[Figure]]]:
    def creates() -> float | None:
        found = [f.ours_median for f in figures if f.what.startswith("creates of")]
        return found[0] if found else None

    return {
        "requests": lambda: requests_per_second(scale.rounds, scale.seconds, scale.spread),
        "drains": lambda: drains(scale.rounds, scale.drains, scale.peer_seconds),
        "lateness": lambda: lateness(scale.late_over, scale.bursts),
        "open holds": lambda: open_holds(scale.sizes),
        "growth": lambda: growth(scale.rounds, scale.seconds, scale.sizes, scale.logs),
        "objects": lambda: objects(scale.rounds, scale.seconds, *scale.objects),
        "schedules": lambda: schedules(*scale.schedules),
        "replay": lambda: replay_tools(scale.log_holds),
        "bad clients": lambda: bad_clients(*scale.bad_clients),
        "holds with terms": lambda: holds(database, scale.rounds, scale.seconds),
        "limits": lambda: limits(creates()),
        "starts": lambda: starts(scale.rounds, scale.idle_connections),
        "pages": lambda: pages(scale.sizes[-1], scale.rounds),
        "streams": lambda: streams(scale.streams, scale.seconds),
        "before": lambda: beside(before, database, scale.rounds, scale.seconds, scale.drains[0]),
        "field": lambda: beside_others(field, scale.rounds),
        "postgres": lambda: postgres(
            database, scale.rounds, scale.seconds, scale.drains[0], scale.late_over, scale.nodes
        ),
    }


def _machine() -> str:
    return (
        f"{cpu_count()} cores, {platform.machine()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"load by {generator()}"
    )


if __name__ == "__main__":
    main()
