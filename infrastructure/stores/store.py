"""The store: one interface over SQLite and PostgreSQL.

What serves asks the store that it is given, and does not know which of the two it is. Only
`replay/backup.py`, which moves whole databases, treats a file and a server differently.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.sql.rows import QuickReader, Reader
from reservation_expiry.infrastructure.stores.sql.session import Session
from reservation_expiry.infrastructure.stores.sql.snapshot import Snapshot

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Watch(Protocol):
    """Hears of alarms that others have set for soon."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Store(Reader, Protocol):
    """A database. Opens connections when they are needed and none before.

    Raises, from every method: StoreBusy, StoreFull, StoreUnavailable, as the driver's
    error is; ForkedProcess in a child of the process that made it.
    """

    newest_schema: int  # what this release migrates to

    @property
    def address(self) -> Address: ...

    @property
    def clock(self) -> Clock:
        """What all processes on this store agree on."""
        ...

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Every row of one statement, which sees the newest commit."""
        ...

    def quick_reader(self) -> QuickReader | None:
        """Reads for an event loop; None where every read waits for a server."""
        ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Reads that see one commit, however long they take."""
        ...

    def session(self) -> Session:
        """The one connection of a writer thread."""
        ...

    def engine(self) -> "Engine":
        """SQLAlchemy's way in, for the job store's reads."""
        ...

    def watch(self, on_alarm: Callable[[int], object]) -> Watch:
        """Calls `on_alarm(due_ms)` for alarms that other processes set for soon, if the
        store can tell."""
        ...

    def wait_until_there(self) -> None:
        """Waits for a server that does not answer yet, and says so."""
        ...

    def exists(self) -> bool:
        """Whether the database has been made."""
        ...

    def refuse_if_unfit(self) -> None:
        """Raises DatabaseRefused if it can be neither written nor made. May make a folder."""
        ...

    def cautions(self) -> Iterator[str]:
        """What its operator should hear of, in sentences."""
        ...

    def integrity(self, *, thorough: bool) -> list[str]:
        """What the store itself finds wrong with its files: with all but the log, or with the
        log too."""
        ...

    def schema_version(self) -> int:
        """How far it has been migrated. Raises ForeignDatabase or NewerSchema."""
        ...

    def migrate(self) -> None:
        """Brings it to the newest schema, making it if it is not there. Raises
        DatabaseRefused, and leaves it as it was."""
        ...

    def refuse_after_fork(self) -> None: ...
    def close(self) -> None: ...


def open_store(address: Address) -> Store:
    """The store at an address; nothing is connected yet."""
    # A process on one store has no use for the other's driver.
    if isinstance(address, PostgresAddress):
        from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore

        return PostgresStore(address)
    from reservation_expiry.infrastructure.stores.sqlite.store import SqliteStore

    return SqliteStore(address)
