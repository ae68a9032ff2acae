"""Namespaces: each is a store of its own beside the others (decision 12).

Ids, positions, locks and logs know nothing of them. To delete one is a transaction in its own
store; what is left there is a tombstone, which everybody who writes looks at, so that nobody
goes on with a log that is gone.
"""

import logging
from dataclasses import asdict, dataclass

import msgspec

from reservation_expiry.infrastructure.errors import DatabaseRefused, StoreError
from reservation_expiry.infrastructure.stores.address import DEFAULT_NAMESPACE, Address
from reservation_expiry.infrastructure.stores.opening import opened, version_of
from reservation_expiry.infrastructure.stores.sql.head import new_log_id, read_life
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.stores.transaction import transaction

SEEN_LATELY_MS = 65_000  # servers say every minute that they are there

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tombstone:
    """What a deleted log was. `at_ms` is when it was deleted, Unix milliseconds."""

    at_ms: int
    reservations: int
    objects: int
    events: int
    alarms: int
    position: int
    digest: str


def declare(address: Address) -> bool:
    """Makes the store of a namespace, or begins a new log where one was deleted. Whether there
    was none. Raises DatabaseRefused, StoreError."""
    store = open_store(address)
    try:
        store.make_place()
        store.refuse_if_unfit()
        is_new = not version_of(store)
        store.migrate()
        if read_life(store).tombstone is None:
            return is_new
        with transaction(store) as session:
            session.begin_log(new_log_id())
        return True
    finally:
        store.close()


def delete(address: Address) -> Tombstone:
    """Empties the store of a namespace. Raises DatabaseRefused if there is none, or it has
    been deleted; StoreError."""
    with opened(address, to_write=True) as store:
        with transaction(store) as session:
            head, counts = session.head(), session.counts()
            tombstone = Tombstone(
                store.clock.now_ms(),
                counts["reservations"],
                counts["objects"],
                counts["events"],
                counts["alarms"],
                head.position,
                head.checksum.hex(),
            )
            session.delete_log(msgspec.json.encode(asdict(tombstone)).decode())
        try:
            store.give_back_space()
        except StoreError as error:
            logger.warning("%s is deleted, and keeps its space for now: %s", address, error)
        return tombstone


def is_declared(address: Address) -> bool:
    store = open_store(address)
    try:
        return version_of(store) > 0
    finally:
        store.close()


@dataclass(frozen=True)
class Described:
    """What stands in a namespace. `objects` are counted by class; `seen` are the processes
    that serve it."""

    log_id: str
    tombstone: Tombstone | None
    schema: int
    head: int
    reservations: int
    open: int
    pending: int
    parked: int
    objects: dict[str, int]
    seen: list[str]


def describe(address: Address) -> Described | None:
    """None if nothing was declared there. Raises DatabaseRefused, StoreError."""
    store = open_store(address)
    try:
        schema = version_of(store)
        if not schema:
            return None
        if schema < store.newest_schema:
            raise DatabaseRefused(
                f"{address} has schema {schema}, this release needs {store.newest_schema}: "
                "serve it once to migrate it"
            )
        with store.read_transaction() as reads:
            queries, life = Queries(reads.rows), read_life(reads.rows)
            overview = queries.overview()
            return Described(
                life.log_id,
                tombstone_of(life.tombstone),
                schema,
                queries.head().position,
                queries.count_reservations(),
                overview.open_holds,
                queries.count_pending(),
                overview.parked,
                queries.count_objects(),
                queries.servers(store.clock.now_ms() - SEEN_LATELY_MS),
            )
    finally:
        store.close()


def listed(address: Address) -> list[tuple[str, Described]]:
    """The database itself, as `default`, and the namespaces beside it. Raises as `describe`."""
    store = open_store(address)
    try:
        places = [(DEFAULT_NAMESPACE, address), *store.namespaces()]
    finally:
        store.close()
    described = ((name, describe(place)) for name, place in places)
    return [(name, found) for name, found in described if found is not None]


def tombstone_of(text: str | None) -> Tombstone | None:
    return None if text is None else msgspec.json.decode(text, type=Tombstone)
