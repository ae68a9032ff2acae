"""The load: 32 connections, from the other core; by wrk, or aiohttp where there is no wrk.

wrk checks nothing but the status, so every script counts what is not as expected and
prints it, and scenarios look at a sample of bodies themselves.
"""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks import python_load

CONNECTIONS = 32
SCRIPTS = Path(__file__).parent / "wrk"


class MissingTool(Exception):
    """A program that the benchmark needs is not installed."""


@dataclass(frozen=True)
class Load:
    """What one run measured. Latencies in ms."""

    per_second: float
    p50_ms: float
    p99_ms: float
    unexpected: int  # answers with another status than the scenario's, or none at all
    answers: int


def run_load(
    script: str, port: int, seconds: float, connections: int = CONNECTIONS, **variables: object
) -> Load:
    """Runs a scenario against a port. Variables go to the script."""
    run = _wrk if shutil.which("wrk") else _python
    return run(script, port, seconds, connections, **variables)


def generator() -> str:
    """What makes the load on this machine."""
    return "wrk" if shutil.which("wrk") else "aiohttp (wrk is not installed)"


def _wrk(script: str, port: int, seconds: float, connections: int, **variables: object) -> Load:
    whole = max(1, round(seconds))  # it takes no others
    command = [
        "wrk",
        "--threads=1",
        f"--connections={connections}",
        f"--duration={whole}s",
        "--timeout=20s",
        f"--script={SCRIPTS / script}.lua",
        f"http://127.0.0.1:{port}",
        "--",
        *(f"{name}={value}" for name, value in variables.items()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)[1])
    return Load(
        found["perSecond"], found["p50Ms"], found["p99Ms"], found["unexpected"], found["answers"]
    )


def _python(script: str, port: int, seconds: float, connections: int, **variables: object) -> Load:
    latencies, unexpected, took = python_load.run(script, port, seconds, connections, **variables)
    p50, p99 = (python_load.percentile(latencies, percent) for percent in (50, 99))
    return Load(len(latencies) / took, p50, p99, unexpected, len(latencies))
