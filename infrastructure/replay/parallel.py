"""Verifying with several processes, for a log that takes seconds to read.

An interpreter replays on one core at a time; the parts of a verification need nothing of
each other, so a pool of processes takes them in turn, each with a connection of its own.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from reservation_expiry.infrastructure.errors import DamagedLog, StoreDamaged, StoreUnavailable
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.verify import (
    Part,
    Progress,
    VerifyReport,
    verify,
    verify_part,
    verify_with,
)
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import Store, open_store

WORTH_IT_EVENTS = 100_000  # below, starting the processes costs more than they save


def verify_with_all_cores(
    store: Store, progress: Progress = lambda events: None, processes: int | None = None
) -> VerifyReport:
    """`verify`, on as many processes as there are cores to run on, or as asked for.

    Each starts a fresh interpreter that imports the main module again, so a program of
    your own that calls this needs its `if __name__ == "__main__":`.
    """
    if processes is None:
        long = events_in(store) >= WORTH_IT_EVENTS
        processes = len(os.sched_getaffinity(0)) if long else 1
    if processes == 1:
        return verify(store, EventMapper(), progress)

    def run(parts: Iterable[Part]) -> Iterator[VerifyReport]:
        return _run_in_pool(store.address, parts, processes, progress)

    return verify_with(store, run)


def events_in(store: Store) -> int:
    """How many events a log has, 0 if it has lost its head."""
    try:
        return Queries(store).head().position
    except (DamagedLog, StoreDamaged):
        return 0


def _run_in_pool(
    address: Address, parts: Iterable[Part], processes: int, progress: Progress
) -> Iterator[VerifyReport]:
    # Threads of the caller's (a progress bar has one) make forking unsafe.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _leave_interrupts_to_the_parent)
    try:
        for done in as_completed([pool.submit(_verify_in_worker, address, part) for part in parts]):
            report, read = done.result()
            progress(read)
            yield report
    except BrokenProcessPool as error:
        raise StoreUnavailable("a process that was verifying was killed") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _verify_in_worker(address: Address, part: Part) -> tuple[VerifyReport, int]:
    """The part's report, and how many events were read for it."""
    read = 0

    def count(events: int) -> None:
        nonlocal read
        read += events

    store = open_store(address)
    try:
        return verify_part(store, EventMapper(), part, count), read
    finally:
        store.close()
