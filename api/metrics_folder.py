"""The folder in which the processes of a service put their counters (`metrics.py`).

It is the parent's, which makes it before it forks and removes it at the end. The parent must
not load `prometheus_client`: every process would begin with it.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # by which prometheus_client finds it


@contextmanager
def metrics_folder() -> Iterator[None]:
    """Raises OSError if there is no place for one."""
    folder = tempfile.mkdtemp(prefix="reservation-expiry-metrics-")
    os.environ[VARIABLE] = folder
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)


def mark_dead(pid: int) -> None:
    """A process has ended: what it counted stays, what was so while it lived does not.
    `prometheus_client.multiprocess.mark_process_dead` removes the same files."""
    folder = os.environ.get(VARIABLE)
    for path in Path(folder).glob(f"gauge_live*_{pid}.db") if folder else ():
        path.unlink(missing_ok=True)
