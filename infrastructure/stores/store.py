"""The store: one interface over SQLite and PostgreSQL.

What serves asks the store that it is given, and does not know which of the two it is. Only
`replay/backup.py`, which moves whole databases, treats a file and a server differently.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.row_types import EventRow
from reservation_expiry.infrastructure.stores.sql.read_transaction import ReadTransaction
from reservation_expiry.infrastructure.stores.sql.rows import QuickReader, Reader
from reservation_expiry.infrastructure.stores.sql.session import Session

if TYPE_CHECKING:
    from sqlalchemy import Engine


Verified = TypeVar("Verified")


class Claim(Protocol):
    """The place of a database file, held until the block that claimed it ends."""

    path: Path

    def holds_events(self) -> bool:
        """Whether there is something to lose."""
        ...

    def put(self, part: Path, *, to_serve: bool) -> None:
        """Puts the database in the file `part` there. Raises DatabaseInUse."""
        ...


class DatabaseFile(Protocol):
    """A whole database in one file."""

    path: Path

    def copy_to(self, target: Path) -> None:
        """Copies the newest commit, beside readers and writers."""
        ...

    def claimed(self) -> AbstractContextManager[Claim]:
        """Raises DatabaseInUse if somebody has it open, ForeignDatabase if it is not ours."""
        ...


class Filling(Protocol):
    """Takes in a whole log: all of it is there at the end of the block, or none."""

    def append(self, batches: Iterable[list[EventRow]]) -> None:
        """The events, as they are. Raises ImportRefused if there are some already,
        VersionConflict if two have one version of one aggregate."""
        ...

    def transaction(self) -> AbstractContextManager[Session]:
        """To write what follows from the events."""
        ...

    def finish(self, verify: Callable[[Address], Verified]) -> Verified:
        """Puts it in place. What `verify` raises keeps a file from its place."""
        ...


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

    def quick_reader(self) -> QuickReader | None:
        """Reads for an event loop; None where every read waits for a server."""
        ...

    def read_transaction(self) -> AbstractContextManager[ReadTransaction]:
        """Reads that see one commit, however long they take."""
        ...

    def session(self) -> Session:
        """The one connection of a writer thread."""
        ...

    def engine(self) -> "Engine":
        """SQLAlchemy's way in, for the job store's reads."""
        ...

    def as_file(self) -> DatabaseFile:
        """Raises DatabaseRefused, and says what to do instead, if it is no file."""
        ...

    def filling(self) -> AbstractContextManager[Filling]:
        """Raises ImportRefused, DatabaseInUse."""
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

    def durability(self) -> tuple[bool, str]:
        """Whether a commit is on disk when it returns, and by which settings."""
        ...

    def server_version(self) -> str:
        """What runs the database, and its version."""
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

    def make_place(self) -> None:
        """Makes what a database of this address needs before it can be made: a schema."""
        ...

    def give_back_space(self) -> None:
        """What deleted rows took, to the disk."""
        ...

    def namespaces(self) -> list[tuple[str, Address]]:
        """The databases beside this one that are namespaces' of it, by their names."""
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
