"""SQLAlchemy's way into the same database, for the job store's reads."""

import psycopg
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from reservation_expiry.infrastructure.stores.postgres.database import Database


def read_engine(database: Database) -> Engine:
    """An engine whose connections are ours, with our settings."""

    def connect() -> psycopg.Connection:
        connection = database.connect()
        connection.autocommit = False
        return connection

    return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
