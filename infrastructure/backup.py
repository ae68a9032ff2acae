"""Whole databases in and out: backup, restore, import of an exported log, copy.

A file is prepared beside the target, verified there, and renamed into place; a server's
database is filled in one transaction. Either way an interruption leaves the target as
it was.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from infrastructure.address import Address, PostgresAddress
from infrastructure.application import ReservationApplication
from infrastructure.errors import DamagedLog, DatabaseRefused, VersionConflict
from infrastructure.event_mapper import EventMapper
from infrastructure.files import replaced_when_done
from infrastructure.parallel_verify import verify_with_all_cores
from infrastructure.rebuild import rebuild
from infrastructure.sql.queries import Queries
from infrastructure.sql.session import EventRow
from infrastructure.sqlite.schema import make_folder, schema_version
from infrastructure.sqlite.store import SqliteStore
from infrastructure.sqlite.whole_file import copy, fill, retire
from infrastructure.store import open_store
from infrastructure.transfer import ImportRefused, read_log, read_store
from infrastructure.verify import Progress, VerifyReport

TWO_VERSIONS = "two events have the same version of one reservation"


def backup(source: Address, target: Path, progress: Progress = lambda events: None) -> VerifyReport:
    """Copies a database file, served or not, into one verified file.

    Raises DatabaseRefused if the source is not one of ours or the copy does not verify,
    DatabaseInUse if the target is a database that some process has open, and OSError if
    its folder cannot be written.
    """
    _refuse_server(source)
    _refuse_missing(source)
    _refuse_itself(source, target)
    retire(target)  # said before the work, and made sure of after it
    store = SqliteStore(source)
    try:
        schema_version(store)
        with replaced_when_done(target) as part:
            copy(store, part)
            report = _verified(part, progress)
            retire(target)
            return report
    finally:
        store.close()


def restore(
    source: Path, target: Address, progress: Progress = lambda events: None
) -> VerifyReport:
    """Puts a backup in the target's place: a backup the other way. Raises as `backup`."""
    _refuse_server(target)
    return backup(source, target, progress)


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
    store = open_store(source)
    try:
        if not (store.exists() and store.schema_version()):
            raise DatabaseRefused(f"there is no database at {source}")
        report = _fill(target, read_store(store, EventMapper(), progress), progress)
    finally:
        store.close()
    return report


def _fill(target: Address, batches: Iterable[list[EventRow]], progress: Progress) -> VerifyReport:
    if isinstance(target, PostgresAddress):
        return _fill_server(target, batches, progress)
    return _fill_file(target, batches, progress)


def _fill_file(target: Path, batches: Iterable[list[EventRow]], progress: Progress) -> VerifyReport:
    make_folder(target)
    _refuse_events(target)
    with replaced_when_done(target) as part:
        store = SqliteStore(part)
        store.migrate()
        try:
            fill(store, batches)
        except VersionConflict as error:
            raise ImportRefused(TWO_VERSIONS) from error
        store.close()
        _project(part)
        report = _verified(part, progress)
        retire(target)
        return report


def _fill_server(
    target: PostgresAddress, batches: Iterable[list[EventRow]], progress: Progress
) -> VerifyReport:
    # A process that has to do with files only has no use for the driver.
    from infrastructure.postgres.fill import fill as fill_server
    from infrastructure.postgres.store import PostgresStore

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


def _refuse_server(address: Address) -> None:
    if isinstance(address, PostgresAddress):
        raise DatabaseRefused(
            f"{address} is a server's database: back it up with pg_dump or pg_basebackup, "
            "or move its log with `reservation-expiry copy`"
        )


def _refuse_missing(source: Path) -> None:
    if not source.exists():
        raise DatabaseRefused(f"there is no database at {source}")


def _refuse_itself(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        raise DatabaseRefused(f"{target} is the database itself")


def _refuse_events(target: Path) -> None:
    retire(target)
    if target.exists():
        store = SqliteStore(target)
        try:
            if store.schema_version() and Queries(store).head():
                raise ImportRefused(f"{target} holds events already: import into a new file")
        finally:
            store.close()


def _project(path: Path) -> None:
    application = ReservationApplication(path)
    application.start(alarms=False)
    try:
        rebuild(application.writer.execute, application.mapper)
    finally:
        application.stop()


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
