"""This tree beside another checkout of it, in turns: what a change has cost, or gained."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.alarms import drain
from benchmarks.figures import Bar, Figure
from benchmarks.load import MissingTool, run_load
from benchmarks.postgres import Site, site_at
from benchmarks.scenarios import WrongAnswer
from benchmarks.servers import ours, scratch
from reservation_expiry.infrastructure.stores.address import Address

NO_SLOWER = Bar(0.95)
# A tree makes its own database, for one of a newer schema is none of an older tree's.
FILL = """
import sys
from pathlib import Path
from benchmarks.data import fill
size, now_ms = int(sys.argv[2]), int(sys.argv[3])
fill(Path(sys.argv[1]), size, lambda i: now_ms - 60_000 + i % 1_000)
"""
LOADS = {
    "creates": {"tag": "new"},
    "reads": {"name": "hot"},
    "reholds": {"tag": "new", "count": 1_000},
}


def before(
    other: Path | None, url: str | None, rounds: int, seconds: float, drained: int
) -> Iterator[Figure]:
    """Raises MissingTool without another checkout that is installed (`make install` there)."""
    if other is None:
        raise MissingTool("--before FOLDER, another checkout, was not given")
    if not _python(other).exists():
        raise MissingTool(f"{other} is not installed: run `make install` there")
    trees = {"ours": Path(__file__).parents[1], "peer": other}
    with site_at(url) as site:
        names = [f"{load}, {store}" for store in ("SQLite", "PostgreSQL") for load in LOADS]
        names.append(f"drain of {drained:,}, SQLite")
        figures = [Figure(n, "1/s", peer_name=other.name, bar=NO_SLOWER) for n in names]
        for turn in range(rounds):
            for side in ("ours", "peer") if turn % 2 else ("peer", "ours"):
                found = _of_tree(trees[side], site, seconds, drained)
                for figure, value in zip(figures, found, strict=True):
                    getattr(figure, side).append(value)
    yield from figures


def _of_tree(tree: Path, site: Site, seconds: float, drained: int) -> list[float]:
    command = [str(_python(tree).with_name("reservation-expiry"))]
    with scratch() as folder:
        found = [
            *_loads(folder / "reservations.db", seconds, command),
            *_loads(site.place(), seconds, command),
        ]
    with scratch() as folder:
        words = [str(folder), str(drained), str(int(time.time() * 1000))]
        subprocess.run([_python(tree), "-c", FILL, *words], cwd=tree, check=True)
        return [*found, drain(folder / "reservations.db", drained, command=command)[0]]


def _loads(database: Address, seconds: float, command: list[str]) -> Iterator[float]:
    with ours(database=database, command=command) as server:
        server.hold("hot", 3_600)
        for script, variables in LOADS.items():
            load = run_load(script, server.port, seconds, **variables)
            if load.unexpected:
                raise WrongAnswer(f"{script}: {load.unexpected} answers were not as expected")
            yield load.per_second


def _python(tree: Path) -> Path:
    return tree / ".venv" / "bin" / "python"
