"""The SQLite store as the rest of the project sees it (`infrastructure/stores/store.py`)."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from sqlite3 import sqlite_version
from typing import TYPE_CHECKING

from reservation_expiry.domain.ids import is_name
from reservation_expiry.infrastructure.clock import Clock, SystemClock
from reservation_expiry.infrastructure.errors import StoreError
from reservation_expiry.infrastructure.machine.files import open_to_others
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sqlite import schema
from reservation_expiry.infrastructure.stores.sqlite.database import Database, translate
from reservation_expiry.infrastructure.stores.sqlite.database_file import DatabaseFile
from reservation_expiry.infrastructure.stores.sqlite.filling import FileFilling, filling
from reservation_expiry.infrastructure.stores.sqlite.quick_reader import QuickReader
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession

if TYPE_CHECKING:
    from sqlalchemy import Engine

FINDINGS = 50  # of SQLite's own that are told
_BUT_THE_LOG = "SELECT quote(name) FROM sqlite_schema WHERE type = 'table' AND name <> 'events'"


class SqliteStore(Database):
    newest_schema = len(schema.MIGRATIONS)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.address = self.path
        self.clock: Clock = SystemClock()

    def session(self) -> SqliteSession:
        return SqliteSession(self)

    def quick_reader(self) -> QuickReader:
        return QuickReader(self)

    def engine(self) -> "Engine":
        # SQLAlchemy takes longer to be imported than most commands take to run.
        from reservation_expiry.infrastructure.stores.sqlite.engine import read_engine

        return read_engine(self)

    def as_file(self) -> DatabaseFile:
        return DatabaseFile(self)

    def filling(self) -> AbstractContextManager[FileFilling]:
        return filling(self.path)

    def watch(self, on_alarm: Callable[[int], object]) -> "NoWatch":
        return NoWatch()

    def wait_until_there(self) -> None:
        """A file is there or is made."""

    def exists(self) -> bool:
        return self.path.is_file()

    def refuse_if_unfit(self) -> None:
        if self.path.exists():
            schema.refuse_if_not_writable(self)
        else:
            schema.refuse_if_not_to_be_made(self.path)

    def cautions(self) -> Iterator[str]:
        return open_to_others(self.path)

    def durability(self) -> tuple[bool, str]:
        ((mode,),) = self.all("PRAGMA journal_mode")
        return mode == "wal", f"journal mode {mode}, synchronous=FULL"

    def server_version(self) -> str:
        return f"SQLite {sqlite_version}"

    def integrity(self, *, thorough: bool) -> list[str]:
        """The log and what follows from it are compared row by row, by their keys; that
        leaves what alarms are found by, and what is none of either."""
        found: list[str] = []
        try:
            tables = [""] if thorough else [f"({name})" for (name,) in self.all(_BUT_THE_LOG)]
            for table in tables:
                rows = self.all(f"PRAGMA integrity_check{table}")
                found += [line for (text,) in rows for line in str(text).splitlines()]
        except StoreError as error:
            found.append(str(error))
        return [f"SQLite says: {line}" for line in found if line != "ok"][:FINDINGS]

    def schema_version(self) -> int:
        return schema.schema_version(self)

    def migrate(self) -> None:
        schema.migrate(self)

    def make_place(self) -> None:
        """A file is made with its folder."""

    def give_back_space(self) -> None:
        connection = self.connect()
        try:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise translate(error) from error
        finally:
            connection.close()

    def namespaces(self) -> list[tuple[str, Address]]:
        """Files beside it, by their names alone."""
        begins, ends = f"{self.path.stem}.", self.path.suffix
        found: list[tuple[str, Address]] = []
        for path in sorted(self.path.parent.iterdir() if self.path.parent.is_dir() else ()):
            name = path.name[len(begins) : len(path.name) - len(ends)]
            if path.name == f"{begins}{name}{ends}" and is_name(name) and path.is_file():
                found.append((name, path))
        return found


class NoWatch:
    """SQLite tells nobody; the alarm clock's own looks find what others have set."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass
