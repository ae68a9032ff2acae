"""The one door to a database for what serves: it is migrated, checked or refused here.

`prepare` migrates, checks and re-arms; `check` says what that would do. All other commands
open it by `stores/opening.py`, which migrates nothing. Copies are migrated where they are
made (`replay/backup.py`).
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from reservation_expiry.infrastructure.machine.files import real_target, sweep
from reservation_expiry.infrastructure.replay.rebuild import rebuild_store
from reservation_expiry.infrastructure.stores.address import Address, refuse_no_file
from reservation_expiry.infrastructure.stores.opening import refuse_deleted, version_of
from reservation_expiry.infrastructure.stores.sql.head import check_head
from reservation_expiry.infrastructure.stores.sql.queries import Overview, Queries
from reservation_expiry.infrastructure.stores.store import Store, open_store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """What was found, and how many rows had to be repaired from the log first."""

    overview: Overview
    repaired: int


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
        if version_of(store):
            check_head(store, address)  # before anything is written
        store.migrate()
        refuse_deleted(store)
        for caution in store.cautions():
            logger.warning("%s", caution)
        repaired = _repair(store) if _needs_repair(store) else 0
        with store.read_transaction() as reads:  # a scan, which may take long
            return Prepared(Queries(reads.rows).overview(), repaired)
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
        version = version_of(store)
        if version:
            check_head(store, address)
        for caution in store.cautions():
            logger.warning("%s", caution)
        if version == 0:
            return "will be created"
        if version < store.newest_schema:
            return "will be migrated"
        refuse_deleted(store)
        if _needs_repair(store):
            return "its projections will be rebuilt from its log"
        return "ready"
    finally:
        store.close()


def _needs_repair(store: Store) -> bool:
    """What counting tells. The first sweep, right after the start, looks closely."""
    with store.read_transaction() as reads:
        queries = Queries(reads.rows)
        return queries.projections_behind() or not queries.as_many_alarms_as_set()


def _repair(store: Store) -> int:
    logger.warning(
        "the projections of %s do not follow from its log: rebuilding them", store.address
    )
    report = rebuild_store(store)
    for difference in report.differences[:10]:
        logger.warning("repaired: %s %s", difference.originator_id, difference.problem)
    logger.warning("%d differences repaired from %d events", report.repaired, report.events)
    return report.repaired
