"""What the machine itself allows: the disk's fsync, SQLite's own inserts."""

import os
import sqlite3
import time
from collections.abc import Iterator
from statistics import median

from benchmarks.figures import Figure
from benchmarks.load import CONNECTIONS
from benchmarks.servers import scratch
from reservation_expiry.infrastructure.stores.sqlite.schema import LOG_TABLES, PROJECTION_TABLES

FSYNCS = 300
PAGE = b"\0" * 4096
SECONDS = 3.0


def limits(creates_per_second: float | None) -> Iterator[Figure]:
    with scratch() as folder:
        yield Figure("fdatasync of a page, median", "us", [_fsync_us(folder / "file")])
        for batch in (CONNECTIONS // 2, CONNECTIONS):
            most = _inserts_per_second(folder / f"{batch}.db", batch)
            note = ""
            if creates_per_second:
                note = f"our creates over HTTP are {creates_per_second / most:.0%} of it"
            what = f"SQLite alone: the rows of {batch} holds in a commit"
            yield Figure(what, "holds/s", [most], note=note)


def _fsync_us(path) -> float:
    times = []
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    for _ in range(FSYNCS):
        os.write(descriptor, PAGE)
        began = time.perf_counter()
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - began)
    os.close(descriptor)
    return median(times) * 1e6


def _inserts_per_second(path, batch: int) -> float:
    """The same tables and statements as the service's, with rows that cost nothing."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(LOG_TABLES + PROJECTION_TABLES)
    number, state, checksum = 0, b"x" * 60, b"x" * 16
    events = ", ".join(["(?, ?, ?, 'reservation.Held', ?, 1, ?)"] * (2 * batch))
    alarms = ", ".join(["(?, 1.5, ?)"] * batch)
    rows = ", ".join(["(?, 2, 'held', 1, 2, NULL, 0, 2)"] * batch)
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        names = [f"{(number + i) * 7919 % 1_000_003:07d}" for i in range(batch)]
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            f"INSERT INTO events VALUES {events}",
            [
                value
                for i, name in enumerate(names)
                for version in (1, 2)
                for value in (2 * (number + i) + version, name, version, state, checksum)
            ],
        )
        connection.execute(
            f"INSERT INTO alarms VALUES {alarms}",
            [value for name in names for value in (name, state)],
        )
        connection.execute(f"INSERT INTO reservations VALUES {rows}", names)
        connection.execute("UPDATE log_head SET position = position + 1")
        connection.execute("COMMIT")
        number += batch
    elapsed = time.perf_counter() - began
    connection.close()
    return number / elapsed
