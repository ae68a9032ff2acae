"""Opening a database that must be there already, for everything but what serves."""

from collections.abc import Iterator
from contextlib import contextmanager

from reservation_expiry.infrastructure.errors import (
    DamagedLog,
    DatabaseRefused,
    NewerSchema,
    StoreUnavailable,
)
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.head import check_head, read_life
from reservation_expiry.infrastructure.stores.sql.read_transaction import ReadTransaction
from reservation_expiry.infrastructure.stores.store import Store, open_store


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
        version = version_of(store)
        if version == 0:
            raise DatabaseRefused(f"there is no database at {address}")
        if version < store.newest_schema and not log_only:
            raise NewerSchema(
                f"{address} has schema {version}, this release needs {store.newest_schema}: "
                "serve it once to migrate it, or `backup` it for a migrated copy"
            )
        if version == store.newest_schema:
            refuse_deleted(store)
        if to_write:
            check_head(store, address)
        yield store
    finally:
        store.close()


def refuse_deleted(store: Store) -> None:
    """Raises DatabaseRefused if its log was deleted. For a store of the newest schema."""
    try:
        tombstone = read_life(store).tombstone
    except DamagedLog:  # which those tell that need the head
        return
    if tombstone is not None:
        raise DatabaseRefused(
            f"what was at {store.address} has been deleted: `namespace create` begins it anew"
        )


def log_id_of(store: Store, reads: ReadTransaction) -> str | None:
    """None for a log that an older release wrote, which has no id yet."""
    if version_of(store) < store.newest_schema:
        return None
    return read_life(reads.rows).log_id


def version_of(store: Store) -> int:
    """0 if there is no database. Raises DatabaseRefused if what is there cannot be read."""
    try:
        return store.schema_version() if store.exists() else 0
    except StoreUnavailable as error:
        raise DatabaseRefused(f"{store.address} cannot be opened: {error}") from error
