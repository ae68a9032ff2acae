"""The other peer: stock APScheduler with its SQLAlchemyJobStore, an empty handler.

    python -m benchmarks.stock_scheduler FILE JOBS

adds date jobs that are overdue, starts the scheduler, and prints jobs per second from
its start to the last run.
"""

import sys
import threading
import time
from datetime import UTC, datetime, timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

THREADS = 10  # APScheduler's own default

_left = 0
_counting = threading.Lock()
_all_ran = threading.Event()


def handler() -> None:
    global _left
    with _counting:
        _left -= 1
        if _left == 0:
            _all_ran.set()


def drain(path: str, jobs: int) -> float:
    global _left
    _left = jobs
    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=f"sqlite:///{path}")},
        executors={"default": ThreadPoolExecutor(THREADS)},
        job_defaults={"misfire_grace_time": None},
        timezone=UTC,
    )
    scheduler.start(paused=True)
    run_date = datetime.now(UTC) - timedelta(minutes=1)
    for number in range(jobs):
        scheduler.add_job(handler, "date", run_date=run_date, id=str(number))
    started = time.perf_counter()
    scheduler.resume()
    _all_ran.wait()
    elapsed = time.perf_counter() - started
    scheduler.shutdown()
    return jobs / elapsed


if __name__ == "__main__":
    print(drain(sys.argv[1], int(sys.argv[2])))
