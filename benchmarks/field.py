"""Beside what people would pick instead: the same job on other tools, as those recommend it.

They are not part of this repository. A folder with them has a `driver.py` that starts each on
scratch data, measures it with checked answers, ours among them (`PRODUCT` is this tree), and
writes what it found as lines of JSON.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Bar, Figure
from benchmarks.load import MissingTool
from benchmarks.servers import scratch

US = "product"
BUDGET_SECONDS = 3_600
FASTEST = "bullmq"  # of them; on Redis with `appendfsync always`
# What is measured: its unit, where it stands in a line, and the bar beside the fastest.
MEASURED: dict[str, tuple[str, tuple[str, ...], Bar | None]] = {
    "creates": ("1/s", ("load", "create", "per_second"), Bar(1.3, 2)),
    "reads of one": ("1/s", ("load", "read", "per_second"), Bar(1.2, 2)),
    "re-holds of 1,000": ("1/s", ("load", "rehold", "per_second"), None),
    "drain of up to 5,000": ("1/s", ("drain", "per_second"), None),
    "lateness of 200 over 20 s, p99": ("ms", ("time", "lateness", "p99_ms"), None),
    "memory, some 10,000 open holds": ("MB", ("load", "memory", "pss_mb"), None),
    "kill -9: of 20 not expired 25 s later": ("", ("time", "kill", "not_expired"), None),
}


def field(folder: Path | None, rounds: int) -> Iterator[Figure]:
    """Raises MissingTool without such a folder."""
    if folder is None:
        raise MissingTool("--field FOLDER, with a driver.py for other tools, was not given")
    with scratch() as made:
        found = _measured(folder, rounds, made)
    for what, (unit, path, bar) in MEASURED.items():
        ours = _values(found, US, path)
        for peer in dict.fromkeys(line["peer"] for line in found):
            theirs = _values(found, peer, path)
            if peer != US and theirs:
                held = bar if peer == FASTEST else None
                yield Figure(f"{what}, beside {peer}", unit, ours, theirs, peer, held)


def _measured(folder: Path, rounds: int, made: Path) -> list[dict[str, Any]]:
    out = made / "found.jsonl"
    words = ["--rounds", str(rounds), "--budget", str(BUDGET_SECONDS), "--out", str(out)]
    env = {"PRODUCT": str(Path(__file__).parents[1]), "PEERS_RUN": str(made / "run")}
    subprocess.run([str(folder / "driver.py"), *words], env=os.environ | env, check=True)
    return [json.loads(line) for line in out.read_text().splitlines()]


def _values(found: list[dict[str, Any]], peer: str, path: tuple[str, ...]) -> list[float]:
    cell, *keys = path
    values = []
    for line in found:
        value = line.get("found") if (line["peer"], line["cell"]) == (peer, cell) else None
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            values.append(float(value))
    return values
