"""What happens once, before anything is served: migrate, check, re-arm.

The parent process of a server does this alone and closes the database again before any
worker opens it.
"""

import logging
from dataclasses import dataclass

from infrastructure.address import Address
from infrastructure.application import ReservationApplication
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


def prepare(address: Address) -> Prepared:
    """Makes the database fit for service; waits for its server if that is not there.

    Raises DatabaseRefused if it must not be served from: foreign, newer, damaged or not
    writable; StoreError if it does not answer.
    """
    store = open_store(address)
    try:
        store.wait_until_there()
        if store.exists() and store.schema_version():
            check_head(store, address)  # before anything is written
        store.migrate()
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
        store.refuse_if_unfit()
        if not store.exists():
            return "will be made"
        if store.schema_version() < store.newest_schema:
            return "will be migrated"
        check_head(store, address)
        if _needs_mending(store):
            return "its projections will be rebuilt from its log"
        return "ready"
    finally:
        store.close()


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
