"""SQLAlchemy's way into the same file, for the job store's reads."""

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import QueuePool

from reservation_expiry.infrastructure.stores.sqlite.database import Database


def read_engine(database: Database) -> Engine:
    """An engine whose connections are ours: read-only, with our settings."""
    return create_engine(
        "sqlite://",
        creator=lambda: database.connect(read_only=True),
        poolclass=QueuePool,
        pool_size=1,
    )
