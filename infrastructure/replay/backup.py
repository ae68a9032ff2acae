"""Whole databases in and out: backup, restore, import of an exported log, copy.

What is to be in a file is prepared beside it and verified there, and put in its place in one
step, the place being held from the beginning; a server's database is filled in one
transaction, under its log's lock. Either way an interruption leaves the target as it was, and
nothing that somebody else wrote there meanwhile is lost.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import cast

from reservation_expiry.infrastructure.errors import DamagedLog, DatabaseRefused, VersionConflict
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.machine.files import FileRefused, make_folder, part_beside
from reservation_expiry.infrastructure.replay.parallel import verify_with_all_cores
from reservation_expiry.infrastructure.replay.rebuild import rebuild_store
from reservation_expiry.infrastructure.replay.transfer import ImportRefused, read_log, read_store
from reservation_expiry.infrastructure.replay.verify import Progress, VerifyReport
from reservation_expiry.infrastructure.stores.address import (
    Address,
    PostgresAddress,
    refuse_no_file,
)
from reservation_expiry.infrastructure.stores.opening import opened
from reservation_expiry.infrastructure.stores.sql.session import EventRow
from reservation_expiry.infrastructure.stores.sqlite.database_file import Claim, claimed, copy, fill
from reservation_expiry.infrastructure.stores.sqlite.store import SqliteStore
from reservation_expiry.infrastructure.stores.store import open_store

TWO_VERSIONS = "two events have the same version of one reservation"


def backup(
    source: Address,
    target: Path,
    progress: Progress = lambda events: None,
    *,
    force: bool = False,
) -> VerifyReport:
    """Copies a database file, served or not, into one verified file of this release's schema.

    A database of ours that is there and holds events is replaced with `force` only, and
    nothing else ever is. Raises DatabaseRefused if the source is not one of ours or the copy
    does not verify, FileRefused or DatabaseRefused if the target is not to be replaced,
    DatabaseInUse if some process has it open, and OSError if it cannot be written.
    """
    return _copied(source, target, progress, force=force, to_serve=False)


def restore(
    source: Path,
    target: Address,
    progress: Progress = lambda events: None,
    *,
    force: bool = False,
) -> VerifyReport:
    """Puts a backup in the target's place: a backup the other way. Raises as `backup`."""
    return _copied(source, _file_at(target), progress, force=force, to_serve=True)


def _copied(
    source: Address, target: Path, progress: Progress, *, force: bool, to_serve: bool
) -> VerifyReport:
    file = _file_at(source)
    refuse_no_file(file)
    refuse_no_file(target)
    if target.exists() and file.exists() and target.samefile(file):
        raise DatabaseRefused(f"{target} is the database itself")
    with opened(file, log_only=True) as store:
        if to_serve:
            make_folder(target.parent)
        with claimed(target) as claim, part_beside(claim.path) as part:
            if claim.holds_events() and not force:
                raise FileRefused(f"{target} holds events already: --force replaces it")
            copy(cast(SqliteStore, store), part)
            report = _verified_part(part, progress)
            claim.put(part, to_serve=to_serve)
            return report


def import_log(
    source: str, target: Address, progress: Progress = lambda events: None
) -> VerifyReport:
    """Makes a database from an exported log (`-`: standard input).

    Raises ImportRefused if anything in it is wrong or the target holds events already,
    and DatabaseInUse; nothing is changed then.
    """
    return _fill(target, read_log(source, EventMapper(), progress), progress)


def copy_log(
    source: Address, target: Address, progress: Progress = lambda events: None
) -> VerifyReport:
    """Makes a database from another one's log, which may be served meanwhile.

    What is committed there after it began is not in the copy. Raises as `import_log`.
    """
    with opened(source, log_only=True) as store:
        return _fill(target, read_store(store, EventMapper(), progress), progress)


def _fill(target: Address, batches: Iterable[list[EventRow]], progress: Progress) -> VerifyReport:
    if isinstance(target, PostgresAddress):
        return _fill_server(target, batches, progress)
    refuse_no_file(target)
    make_folder(target.parent)
    with claimed(target) as claim, part_beside(claim.path) as part:
        return _fill_file(claim, part, batches, progress)


def _fill_file(
    claim: Claim, part: Path, batches: Iterable[list[EventRow]], progress: Progress
) -> VerifyReport:
    if claim.holds_events():
        raise ImportRefused(f"{claim.path} holds events already: import into a new file")
    store = SqliteStore(part)
    store.migrate()
    try:
        fill(store, batches)
        rebuild_store(store)
    except VersionConflict as error:
        raise ImportRefused(TWO_VERSIONS) from error
    finally:
        store.close()
    report = _verified(part, progress)
    claim.put(part, to_serve=True)
    return report


def _fill_server(
    target: PostgresAddress, batches: Iterable[list[EventRow]], progress: Progress
) -> VerifyReport:
    # A process that has to do with files only has no use for the driver.
    from reservation_expiry.infrastructure.replay.fill import fill as fill_server
    from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore

    rows = iter(batches)
    first = next(rows, [])  # what is wrong with the source is said before anything is made
    store = PostgresStore(target)
    try:
        store.migrate()
        try:
            fill_server(store, chain([first], rows), EventMapper())
        except VersionConflict as error:
            raise ImportRefused(TWO_VERSIONS) from error
    finally:
        store.close()
    return _verified(target, progress)


def _file_at(address: Address) -> Path:
    if isinstance(address, PostgresAddress):
        raise DatabaseRefused(
            f"{address} is a server's database: back it up with pg_dump or pg_basebackup, "
            "or move its log with `reservation-expiry copy`"
        )
    return address


def _verified_part(part: Path, progress: Progress) -> VerifyReport:
    """Of a copy, which may be of an older schema until now."""
    store = SqliteStore(part)
    try:
        store.migrate()
    finally:
        store.close()
    return _verified(part, progress)


def _verified(address: Address, progress: Progress) -> VerifyReport:
    store = open_store(address)
    try:
        report = verify_with_all_cores(store, progress)
    finally:
        store.close()
    if report.found:
        first = report.differences[0]
        raise DamagedLog(
            f"the copy in {address} does not verify: {report.found} differences, "
            f"the first at position {first.position}: {first.originator_id} {first.problem}"
        )
    return report
