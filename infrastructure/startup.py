"""What happens once, before anything is served: migrate, check, re-arm.

The parent process of a server does this alone and closes the database again before any
worker opens it.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from infrastructure.application import ReservationApplication
from infrastructure.errors import DatabaseNotWritable
from infrastructure.rebuild import rebuild
from infrastructure.sqlite.database import Database
from infrastructure.sqlite.queries import Overview, Queries
from infrastructure.sqlite.schema import (
    MIGRATIONS,
    check_head,
    make_folder,
    migrate,
    schema_version,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """What was found, and how many rows had to be mended from the log first."""

    overview: Overview
    mended: int


def prepare(path: Path) -> Prepared:
    """Makes the database at `path` fit for service.

    Raises DatabaseRefused if it must not be served from: foreign, newer, damaged or not
    writable; StoreError if it does not answer.
    """
    database = Database(path)
    try:
        if path.is_file() and schema_version(database):
            check_head(database)  # before anything is written
        migrate(database)
        queries = Queries(database)
        mended = _mend(path) if _needs_mending(queries) else 0
        return Prepared(queries.overview(), mended)
    finally:
        database.close()


def check(path: Path) -> str:
    """What a start would find, in a few words; changes nothing but may make the folder.

    Raises as `prepare` does.
    """
    if not path.exists():
        make_folder(path)
        if not os.access(path.parent, os.W_OK):
            raise DatabaseNotWritable(f"the folder {path.parent} cannot be written")
        return "will be made"
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        raise DatabaseNotWritable(f"{path} or its folder cannot be written")
    database = Database(path)
    try:
        if schema_version(database) < len(MIGRATIONS):
            return "will be migrated"
        check_head(database)
        if _needs_mending(Queries(database)):
            return "its projections will be rebuilt from its log"
        return "ready"
    finally:
        database.close()


def _needs_mending(queries: Queries) -> bool:
    """What can be told at once. The first sweep, right after the start, looks closely."""
    return queries.projections_behind() or not queries.as_many_alarms_as_set()


def _mend(path: Path) -> int:
    logger.warning("the projections of %s do not follow from its log: rebuilding them", path)
    application = ReservationApplication(path)
    application.start(alarms=False)
    try:
        report = rebuild(application.writer, application.mapper)
    finally:
        application.stop()
    for difference in report.differences[:10]:
        logger.warning("mended: %s %s", difference.originator_id, difference.problem)
    logger.warning("%d differences mended from %d events", report.mended, report.events)
    return report.mended
