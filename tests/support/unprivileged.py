"""Running something in a process without root's rights, and small disks of our own."""

import os
import pickle
import pwd
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def as_nobody(function: Callable[[], Any]) -> Any:
    """What `function()` returns, or raises, in a child that has no rights of root's.

    What it needs must be imported already: nobody may not read root's folders.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "wb") as out:
            pickle.dump(_tried(function), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as found:
        result, error = pickle.load(found)
    os.waitpid(child, 0)
    if error is not None:
        raise error
    return result


def _tried(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)
        return function(), None
    except BaseException as error:
        return None, error


@contextmanager
def nobodys_folder() -> Iterator[Path]:
    """A folder that nobody may read and write; pytest's own are for its user alone."""
    with tempfile.TemporaryDirectory(prefix="reservation-expiry-") as name:
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(name, nobody.pw_uid, nobody.pw_gid)
        yield Path(name)


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """A file system of so many MiB at `folder`, where this user may mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT TESTED: this user may not mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remounted_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
