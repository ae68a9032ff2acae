"""The command that looks whether a machine and a database can do what is promised."""

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from statistics import median
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import click

from reservation_expiry.api.cli.common import (
    EXIT_DIFFERENT,
    Command,
    database_option,
    json_option,
    print_json,
)
from reservation_expiry.api.limits import CONNECTIONS
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.clock import SystemClock
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.opening import version_of
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import Store, open_store

SLOW_MS = 100.0  # an fsync, or a round trip to the server: holds a second by it, in one commit
LEAST_FREE_BYTES = 256 * 1024 * 1024
MOST_APART_MS = 1_000  # clocks
LEAST_FILES = 1_024
TRIES = 5


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, whether it is well, and what was found."""

    what: str
    is_well: bool
    found: str


@click.command(cls=Command)
@database_option
@json_option
def doctor(database: Address, as_json: bool) -> None:
    """Look whether this machine and the database can do what is promised; changes nothing."""
    store = open_store(database)
    try:
        findings = [_checked(what, check, store) for what, check in CHECKS]
    finally:
        store.close()
    for finding in findings:
        if as_json:
            print_json({"check": finding.what, "ok": finding.is_well, "found": finding.found})
        else:
            click.echo(f"{'ok ' if finding.is_well else 'BAD'}  {finding.what:<14}{finding.found}")
    if not all(finding.is_well for finding in findings):
        sys.exit(EXIT_DIFFERENT)


def _checked(what: str, check: Callable[[Store], tuple[bool, str]], store: Store) -> Finding:
    try:
        return Finding(what, *check(store))
    except (ReservationExpiryError, OSError) as error:
        return Finding(what, False, str(error))


def _address(store: Store) -> tuple[bool, str]:
    where = store.address.resolve() if isinstance(store.address, Path) else store.address
    if not store.exists():
        store.refuse_if_unfit()
        return True, f"{where}, which is not there yet"
    store.refuse_if_unfit()
    cautions = list(store.cautions())
    return not cautions, "; ".join(cautions) or str(where)


def _schema(store: Store) -> tuple[bool, str]:
    found, newest = version_of(store), store.newest_schema
    if found == 0:
        return True, f"none yet; serving it makes {newest}"
    if found < newest:
        return False, f"{found}, and this release needs {newest}: serve it once to migrate it"
    return True, str(found)


def _commits(store: Store) -> tuple[bool, str]:
    if not store.exists():
        return True, "as it will be made"
    return store.durability()


def _fsync(store: Store) -> tuple[bool, str]:
    if isinstance(store.address, Path):
        took_ms = median(_sync_times_ms(_folder_of(store.address)))
        return took_ms <= SLOW_MS, f"{took_ms:.1f} ms, of {TRIES} in the database's folder"
    took_ms = median(_round_trips_ms(store))
    return took_ms <= SLOW_MS, f"the server's; a round trip to it takes {took_ms:.1f} ms"


def _sync_times_ms(folder: Path) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(TRIES):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            yield (time.perf_counter() - began) * 1000


def _round_trips_ms(store: Store) -> Iterator[float]:
    for _ in range(TRIES):
        began = time.perf_counter()
        store.schema_version()
        yield (time.perf_counter() - began) * 1000


def _disk(store: Store) -> tuple[bool, str]:
    if not isinstance(store.address, Path):
        return True, "the server's"
    free = shutil.disk_usage(_folder_of(store.address)).free
    return free >= LEAST_FREE_BYTES, f"{free / 1024**3:.1f} GiB free"


def _clock(store: Store) -> tuple[bool, str]:
    if version_of(store) == 0:
        return True, "nothing to compare it with yet"
    own_ms = SystemClock().now_ms()
    apart_ms = store.clock.now_ms() - own_ms
    if abs(apart_ms) > MOST_APART_MS:
        return False, f"the database's is {apart_ms / 1000:+.1f} s from this machine's"
    queries = Queries(store)
    newest = queries.events_after(max(0, queries.head().position - 1), 1)
    ahead_ms = newest[0].recorded_at_ms - store.clock.now_ms() if newest else 0
    if ahead_ms > MOST_APART_MS:
        return False, f"the newest event is {ahead_ms / 1000:.1f} s in its future"
    return True, f"{apart_ms} ms from the database's"


def _zones(store: Store) -> tuple[bool, str]:
    try:
        ZoneInfo("Europe/Berlin")
        data = version("tzdata")
    except (ZoneInfoNotFoundError, PackageNotFoundError) as error:
        return False, str(error)
    return True, f"{len(available_timezones())} zones; tzdata {data}"


def _files(store: Store) -> tuple[bool, str]:
    """A process raises its own limit as far as the hard one goes."""
    _, hard = getrlimit(RLIMIT_NOFILE)
    if hard == RLIM_INFINITY:
        return True, "no limit"
    return hard >= LEAST_FILES, f"{hard} may be open; a process serves {CONNECTIONS} connections"


def _versions(store: Store) -> tuple[bool, str]:
    ours, python = version("reservation-expiry"), platform.python_version()
    there = store.server_version() if store.exists() else "no database"
    return True, f"reservation-expiry {ours}, Python {python}, {there}, {platform.platform()}"


def _folder_of(path: Path) -> Path:
    """Its folder, or the nearest one that is there."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())


CHECKS = (
    ("address", _address),
    ("schema", _schema),
    ("commits", _commits),
    ("fsync", _fsync),
    ("disk", _disk),
    ("clock", _clock),
    ("time zones", _zones),
    ("open files", _files),
    ("versions", _versions),
)
