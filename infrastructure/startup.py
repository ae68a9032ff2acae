"""The one door to a database: it is migrated, checked or refused here, and nowhere else.

`prepare` is for what serves: it migrates, checks and re-arms. `check` says what that would
do. `opened` is for all other commands: it migrates nothing. Copies are migrated where they
are made (`backup.py`).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infrastructure.address import Address, refuse_no_file
from infrastructure.application import ReservationApplication
from infrastructure.errors import DatabaseRefused, NewerSchema, StoreUnavailable
from infrastructure.files import real_target, sweep
from infrastructure.rebuild import rebuild
from infrastructure.sql.head import check_head
from infrastructure.sql.queries import Overview, Queries
from infrastructure.store import Store, open_store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """What was found, and how many rows had to be mended from the log first."""

    overview: Overview
    mended: int


@contextmanager
def opened(address: Address, *, to_write: bool = False, log_only: bool = False) -> Iterator[Store]:
    """The store at `address`, which must be there and of this release's schema.

    `to_write`: refused unless it can be written, and has all that was ever committed.
    `log_only`: for those that read nothing but the log, which every schema has. Raises
    DatabaseRefused.
    """
    store = open_store(address)
    try:
        if to_write and store.exists():
            store.refuse_if_unfit()
        version = _version_of(store)
        if version == 0:
            raise DatabaseRefused(f"there is no database at {address}")
        if version < store.newest_schema and not log_only:
            raise NewerSchema(
                f"{address} has schema {version}, this release needs {store.newest_schema}: "
                "serve it once to migrate it, or `backup` it for a migrated copy"
            )
        if to_write:
            check_head(store, address)
        yield store
    finally:
        store.close()


def prepare(address: Address) -> Prepared:
    """Makes the database fit for service, by the one process that serves it and before any
    other of it opens it; waits for its server if that is not there.

    Raises DatabaseRefused if it must not be served from: foreign, newer, damaged or not
    writable; StoreError if it does not answer.
    """
    store = open_store(address)
    try:
        store.wait_until_there()
        if isinstance(address, Path):
            refuse_no_file(address)
            sweep(real_target(address))
        store.refuse_if_unfit()
        if _version_of(store):
            check_head(store, address)  # before anything is written
        store.migrate()
        for caution in store.cautions():
            logger.warning("%s", caution)
        mended = _mend(address) if _needs_mending(store) else 0
        with store.snapshot() as snapshot:  # a scan, which may take long
            return Prepared(Queries(snapshot.rows).overview(), mended)
    finally:
        store.close()


def check(address: Address) -> str:
    """What a start would find, in a few words; changes nothing but may make the folder.

    Raises as `prepare` does.
    """
    store = open_store(address)
    try:
        if isinstance(address, Path):
            refuse_no_file(address)
        store.refuse_if_unfit()
        version = _version_of(store)
        if version:
            check_head(store, address)
        for caution in store.cautions():
            logger.warning("%s", caution)
        if version == 0:
            return "will be made"
        if version < store.newest_schema:
            return "will be migrated"
        if _needs_mending(store):
            return "its projections will be rebuilt from its log"
        return "ready"
    finally:
        store.close()


def _version_of(store: Store) -> int:
    """0 if there is no database. Raises DatabaseRefused if what is there cannot be read."""
    try:
        return store.schema_version() if store.exists() else 0
    except StoreUnavailable as error:
        raise DatabaseRefused(f"{store.address} cannot be opened: {error}") from error


def _needs_mending(store: Store) -> bool:
    """What counting tells. The first sweep, right after the start, looks closely."""
    with store.snapshot() as snapshot:
        queries = Queries(snapshot.rows)
        return queries.projections_behind() or not queries.as_many_alarms_as_set()


def _mend(address: Address) -> int:
    logger.warning("the projections of %s do not follow from its log: rebuilding them", address)
    application = ReservationApplication(address)
    application.start(alarms=False)
    try:
        report = rebuild(application.writer.execute, application.mapper)
    finally:
        application.stop()
    for difference in report.differences[:10]:
        logger.warning("mended: %s %s", difference.originator_id, difference.problem)
    logger.warning("%d differences mended from %d events", report.mended, report.events)
    return report.mended
