"""Telling whether a process of this machine is still there, without asking it.

A pid alone does not tell, since pids are used again, and another container has its own.
So a process is named by its machine's boot, its pid namespace, its pid and its start;
about one whose boot or namespace is not ours nothing is said. Linux only: elsewhere
nothing is ever said, and leases end by themselves.
"""

import os
from pathlib import Path

PROC = Path("/proc")


def this_process() -> str:
    """The name of this process, empty where the system does not tell enough."""
    start = _start_of(os.getpid())
    place = _place()
    return f"{place}/{os.getpid()}/{start}" if start and place else ""


def is_gone(process: str) -> bool:
    """Whether the process of that name has certainly ended."""
    place, _, rest = process.rpartition("/")[0].rpartition("/")
    start = process.rpartition("/")[2]
    return bool(place) and place == _place() and _start_of(int(rest)) != start


def _place() -> str:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink(PROC / "self/ns/pid")
    except OSError:
        return ""
    return f"{boot}/{namespace}"


def _start_of(pid: int) -> str:
    """When it started, in the kernel's ticks; empty if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return ""
    # The second field is the program's name in parentheses, and may have blanks in it.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
