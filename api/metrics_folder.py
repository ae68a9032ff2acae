"""The folder in which the processes of a service put their counters (`metrics.py`).

It is the parent's, which makes it before it forks and removes it at the end. The parent must
not load `prometheus_client`: every process would begin with it.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reservation_expiry.infrastructure.machine.processes import is_gone, this_process

PREFIX = "reservation-expiry-metrics-"
OWNER = "owner"  # the file that says which process has made it
VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # by which prometheus_client finds it


@contextmanager
def metrics_folder() -> Iterator[None]:
    """Raises OSError if there is no place for one."""
    _remove_those_left()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    Path(folder, OWNER).write_text(this_process())
    os.environ[VARIABLE] = folder
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)


def _remove_those_left() -> None:
    """By services that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another account's, or another service is removing it just now
            if folder.stat().st_uid == os.getuid() and is_gone((folder / OWNER).read_text()):
                shutil.rmtree(folder)


def mark_dead(pid: int) -> None:
    """A process has ended: what it counted stays, what was so while it lived does not.
    `prometheus_client.multiprocess.mark_process_dead` removes the same files."""
    folder = os.environ.get(VARIABLE)
    for path in Path(folder).glob(f"gauge_live*_{pid}.db") if folder else ():
        path.unlink(missing_ok=True)
