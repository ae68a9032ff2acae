"""The PostgreSQL store as the rest of the project sees it (`infrastructure/stores/store.py`)."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn

from psycopg import sql

from reservation_expiry.domain.ids import is_name
from reservation_expiry.infrastructure.errors import DatabaseRefused, StoreError
from reservation_expiry.infrastructure.stores.address import Address, namespaced
from reservation_expiry.infrastructure.stores.postgres import schema
from reservation_expiry.infrastructure.stores.postgres.database import Database
from reservation_expiry.infrastructure.stores.postgres.filling import ServerFilling, filling
from reservation_expiry.infrastructure.stores.postgres.session import PostgresSession
from reservation_expiry.infrastructure.stores.postgres.watch import Watch
from reservation_expiry.infrastructure.stores.sql.tables import EVERYTHING

if TYPE_CHECKING:
    from sqlalchemy import Engine

ASK_AGAIN_SECONDS = 1.0
SAY_AGAIN_SECONDS = 10.0
# What a server says that is there but refuses us for good, as far as its words can be read.
FOR_GOOD = ("password authentication failed", "does not exist", "no pg_hba.conf entry")

VACUUM_LOCK_MS = 2_000  # for which a table is waited for
_NAMESPACES = """
SELECT schemaname FROM pg_tables WHERE tablename = 'log_head' AND starts_with(schemaname, 'rx_')
ORDER BY schemaname"""

logger = logging.getLogger(__name__)


class PostgresStore(Database):
    newest_schema = len(schema.MIGRATIONS)

    def session(self) -> PostgresSession:
        return PostgresSession(self)

    def quick_reader(self) -> None:
        """None: every read here waits for the server."""

    def engine(self) -> "Engine":
        # SQLAlchemy takes longer to be imported than most commands take to run.
        from reservation_expiry.infrastructure.stores.postgres.engine import read_engine

        return read_engine(self)

    def as_file(self) -> NoReturn:
        raise DatabaseRefused(
            f"{self.address} is a server's database: back it up with pg_dump or pg_basebackup, "
            "or move its log with `reservation-expiry copy`"
        )

    def filling(self) -> AbstractContextManager[ServerFilling]:
        return filling(self)

    def watch(self, on_alarm: Callable[[int], object]) -> Watch:
        return Watch(self, on_alarm)

    def wait_until_there(self) -> None:
        """Waits for a server that does not answer yet. Raises DatabaseRefused if it answers
        that it does not know us."""
        said = 0.0
        while True:
            try:
                with self.lent():
                    return
            except StoreError as error:
                if any(words in str(error) for words in FOR_GOOD):
                    raise DatabaseRefused(f"{self.address} cannot be opened: {error}") from error
                if time.monotonic() - said > SAY_AGAIN_SECONDS or not said:
                    logger.warning("waiting for %s: %s", self.address, error)
                    said = time.monotonic()
            time.sleep(ASK_AGAIN_SECONDS)

    def exists(self) -> bool:
        return self.schema_version() > 0

    def refuse_if_unfit(self) -> None:
        if not self.exists():
            schema.refuse_if_not_to_be_made(self)

    def cautions(self) -> Iterator[str]:
        """Settings of the server with which it does not do what is promised."""
        yield from self.doubts()

    def durability(self) -> tuple[bool, str]:
        doubts = self.doubts()
        return not doubts, "; ".join(doubts) or "the server's settings keep what is committed"

    def server_version(self) -> str:
        return f"PostgreSQL {self.all('SHOW server_version')[0][0]}"

    def integrity(self, *, thorough: bool) -> list[str]:
        """That is the server's to say (amcheck)."""
        return []

    def schema_version(self) -> int:
        version, now_ms = schema.schema_version(self)
        self.clock.observe(now_ms)
        return version

    def migrate(self) -> None:
        schema.migrate(self)

    def make_place(self) -> None:
        """The schema that the search path names first, if it is not there."""
        with self.lent() as connection:
            path = connection.execute("SHOW search_path").fetchall()[0][0]
            name = path.partition(",")[0].strip().strip('"')
            made = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name))
            connection.execute(made)

    def give_back_space(self) -> None:
        with self.connect() as connection:
            connection.execute(f"SET lock_timeout = {VACUUM_LOCK_MS}")
            for table in EVERYTHING:
                connection.execute(f"VACUUM (FULL, ANALYZE) {table.name}")

    def namespaces(self) -> list[tuple[str, Address]]:
        """Schemas of its database with a log in them."""
        rows = self.all(_NAMESPACES)
        names = [schema.removeprefix("rx_").replace("_", "-") for (schema,) in rows]
        return [(name, namespaced(self.address, name)) for name in names if is_name(name)]
