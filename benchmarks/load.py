"""The load: wrk with 32 connections, from the other core.

wrk checks nothing but the status, so every script counts what is not as expected and
prints it, and scenarios look at a sample of bodies themselves.
"""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONNECTIONS = 32
SCRIPTS = Path(__file__).parent / "wrk"


class MissingTool(Exception):
    """A program that the benchmark needs is not installed."""


@dataclass(frozen=True)
class Load:
    """What one run of wrk measured. Latencies in ms."""

    per_second: float
    p50_ms: float
    p99_ms: float
    unexpected: int  # answers with another status than the scenario's, or none at all


def wrk(script: str, port: int, seconds: float, **variables: object) -> Load:
    """Runs `wrk/<script>.lua` against a port. Variables go to the script as JSON."""
    if shutil.which("wrk") is None:
        raise MissingTool("wrk is not installed (Debian: apt-get install wrk)")
    command = [
        "wrk",
        "--threads=1",
        f"--connections={CONNECTIONS}",
        f"--duration={max(1, round(seconds))}s",
        "--timeout=20s",
        f"--script={SCRIPTS / script}.lua",
        f"http://127.0.0.1:{port}",
        "--",
        *(f"{name}={value}" for name, value in variables.items()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)[1])
    return Load(found["perSecond"], found["p50Ms"], found["p99Ms"], found["unexpected"])
