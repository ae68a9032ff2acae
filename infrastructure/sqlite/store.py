"""The SQLite store as the rest of the project sees it (`infrastructure/store.py`)."""

import os
from collections.abc import Callable
from pathlib import Path

from infrastructure.clock import Clock, SystemClock
from infrastructure.errors import DatabaseNotWritable
from infrastructure.sqlite import schema
from infrastructure.sqlite.database import Database
from infrastructure.sqlite.engine import Engine, read_engine
from infrastructure.sqlite.quick_reader import QuickReader
from infrastructure.sqlite.session import SqliteSession


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

    def engine(self) -> Engine:
        return read_engine(self)

    def watch(self, on_alarm: Callable[[int], object]) -> "NoWatch":
        return NoWatch()

    def wait_until_there(self) -> None:
        """A file is there or is made."""

    def exists(self) -> bool:
        return self.path.is_file()

    def refuse_if_unfit(self) -> None:
        path = self.path
        if not path.exists():
            schema.make_folder(path)
            if not os.access(path.parent, os.W_OK):
                raise DatabaseNotWritable(f"the folder {path.parent} cannot be written")
        elif not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            raise DatabaseNotWritable(f"{path} or its folder cannot be written")

    def schema_version(self) -> int:
        return schema.schema_version(self)

    def migrate(self) -> None:
        schema.migrate(self)


class NoWatch:
    """SQLite tells nobody; the alarm clock's own looks find what others have set."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass
