"""Whole databases in and out: backup, restore, and import of an exported log.

Each prepares its result in a file beside the target, verifies it there, and renames it
into place; an interruption leaves the target as it was.
"""

from pathlib import Path

from infrastructure.application import ReservationApplication
from infrastructure.errors import DamagedLog, DatabaseRefused, VersionConflict
from infrastructure.event_mapper import EventMapper
from infrastructure.files import replaced_when_done
from infrastructure.parallel_verify import verify_with_all_cores
from infrastructure.rebuild import rebuild
from infrastructure.sqlite.database import Database
from infrastructure.sqlite.queries import Queries
from infrastructure.sqlite.schema import migrate, schema_version
from infrastructure.sqlite.whole_file import copy, fill, retire
from infrastructure.transfer import ImportRefused, read_log
from infrastructure.verify import Progress, VerifyReport


def backup(source: Path, target: Path, progress: Progress = lambda events: None) -> VerifyReport:
    """Copies a database, served or not, into one verified file.

    Raises DatabaseRefused if the source is not one of ours or the copy does not verify,
    DatabaseInUse if the target is a database that some process has open, and OSError if
    its folder cannot be written.
    """
    _refuse_missing(source)
    _refuse_itself(source, target)
    retire(target)  # said before the work, and made sure of after it
    database = Database(source)
    try:
        schema_version(database)
        with replaced_when_done(target) as part:
            copy(database, part)
            report = _verified(part, progress)
            retire(target)
            return report
    finally:
        database.close()


def restore(source: Path, target: Path, progress: Progress = lambda events: None) -> VerifyReport:
    """Puts a backup in the target's place: a backup the other way. Raises as `backup`."""
    return backup(source, target, progress)


def import_log(source: str, target: Path, progress: Progress = lambda events: None) -> VerifyReport:
    """Makes a database from an exported log (`-`: standard input).

    Raises ImportRefused if anything in it is wrong or the target holds events already,
    and DatabaseInUse; nothing is changed then.
    """
    _refuse_events(target)
    mapper = EventMapper()
    with replaced_when_done(target) as part:
        database = Database(part)
        migrate(database)
        try:
            fill(database, read_log(source, mapper, progress))
        except VersionConflict as error:
            raise ImportRefused("two events have the same version of one reservation") from error
        database.close()
        _project(part)
        report = _verified(part, progress)
        retire(target)
        return report


def _refuse_missing(source: Path) -> None:
    if not source.exists():
        raise DatabaseRefused(f"there is no database at {source}")


def _refuse_itself(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        raise DatabaseRefused(f"{target} is the database itself")


def _refuse_events(target: Path) -> None:
    retire(target)
    if target.exists():
        database = Database(target)
        try:
            if schema_version(database) and Queries(database).head():
                raise ImportRefused(f"{target} holds events already: import into a new file")
        finally:
            database.close()


def _project(path: Path) -> None:
    application = ReservationApplication(path)
    application.start(alarms=False)
    try:
        rebuild(application.writer, application.mapper)
    finally:
        application.stop()


def _verified(path: Path, progress: Progress) -> VerifyReport:
    database = Database(path)
    try:
        report = verify_with_all_cores(database, progress)
    finally:
        database.close()
    if report.found:
        first = report.differences[0]
        raise DamagedLog(
            f"the copy does not verify: {report.found} differences, the first at position "
            f"{first.position}: {first.originator_id} {first.problem}"
        )
    return report
