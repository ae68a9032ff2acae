"""What a page has somebody type into a terminal is typed there, and prints what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import free_port

pytestmark = pytest.mark.real_time

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = Path(sys.executable).parent
MARK = "---- the next command"
# As in a terminal, `%1` is the first command in the background; none outlives the session.
TERMINAL = "set -m; trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT\n"


def session_of(page: str) -> list[tuple[str, str]]:
    """[(command, what it prints)], of all its consoles."""
    consoles = re.findall(r"```console\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    parts = [part for console in consoles for part in re.split(r"^\$ ", console, flags=re.M)[1:]]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def comparable(text: str) -> str:
    """Times, ids and digests are others each time."""
    return re.sub(r"\b[0-9a-f]{16,32}\b|\d[\d,]*(\.\d+)?", "N", text).strip()


def typed(commands: list[str], folder: Path) -> list[str]:
    """What each of them prints, in one shell, on a port of its own."""
    port = str(free_port())
    script = TERMINAL + "\n".join(f"{command}\necho; echo '{MARK}'" for command in commands)
    ran = subprocess.run(
        ["timeout", "60", "bash", "-c", script.replace("localhost:8787", f"127.0.0.1:{port}")],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "RESERVATION_PORT": port,
            "RESERVATION_DATABASE": "reservations.db",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.split(MARK)[:-1]


@pytest.mark.parametrize("page", ["tutorial.md", "operate/backup.md", "operate/follow.md"])
def test_the_session_prints_what_it_says_in(page: str, tmp_path: Path) -> None:
    session = session_of(page)
    printed = typed([command for command, _ in session], tmp_path)
    assert len(printed) == len(session)
    for (command, expected), found in zip(session, printed, strict=True):
        assert (command, comparable(found)) == (command, comparable(expected))
