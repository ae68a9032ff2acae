"""One transaction on a session of its own, for what no writer does."""

from collections.abc import Iterator
from contextlib import contextmanager

from reservation_expiry.infrastructure.stores.sql.session import Session
from reservation_expiry.infrastructure.stores.store import Store


@contextmanager
def transaction(store: Store) -> Iterator[Session]:
    """With the log's lock; committed at the end of the block. Raises StoreError."""
    session = store.session()
    try:
        session.begin()
        yield session
        session.commit()
    except BaseException:
        session.rollback()
        raise
    finally:
        session.close()
