"""Taking in a whole log: events and all that follows from them, in one transaction."""

from collections.abc import Iterable
from contextlib import suppress

from reservation_expiry.infrastructure.errors import StoreError
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.replay.transfer import ImportRefused
from reservation_expiry.infrastructure.stores.postgres.session import PostgresSession
from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore
from reservation_expiry.infrastructure.stores.sql.session import EventRow
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork


def fill(store: PostgresStore, batches: Iterable[list[EventRow]], mapper: EventMapper) -> None:
    """Appends events, as they are, to an empty log, and projects them.

    Nobody sees any of it before all is there. Raises ImportRefused if the log is not empty,
    VersionConflict if two events have one version of one aggregate.
    """
    session = PostgresSession(store, patient=True)
    try:
        session.begin()
        if session.head()[0]:
            raise ImportRefused(f"{store.address} holds events already: use an empty schema")
        for rows in batches:
            if rows:
                session.append(rows)
        unit = UnitOfWork(session, mapper, store.clock.now_ms())
        rebuild(lambda work: work.run(unit), mapper)
        session.commit()
    except BaseException:
        with suppress(StoreError):
            session.rollback()
        raise
    finally:
        session.close()
