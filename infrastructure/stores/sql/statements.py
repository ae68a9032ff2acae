"""What every statement of a write transaction is made of, whatever the store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from reservation_expiry.infrastructure.stores.sql.rows import Rows
from reservation_expiry.infrastructure.stores.sql.tables import Table


class Statements(ABC):
    """One connection, in a transaction. Raises as `Session` does."""

    @abstractmethod
    def _rows(self) -> Rows:
        """The transaction's connection, for reading."""

    @abstractmethod
    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Executes it now. How many rows it touched."""

    def _write(self, table: str, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Executes it at the latest before the next statement that reads, or the commit."""
        self._run(statement, parameters)

    @abstractmethod
    def _put(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None: ...

    @abstractmethod
    def _among(self, column: str, keys: Sequence[str]) -> tuple[str, object]:
        """A condition that the column is one of these, and its value."""

    def _delete(self, table: str, keys: Sequence[str], key: str = "id") -> None:
        among, wanted = self._among(key, keys)
        self._write(table, f"DELETE FROM {table} WHERE {among}", (wanted,))

    def _one(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        rows = self._fetch(statement, parameters)
        return rows[0] if rows else None

    def _fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self._rows().all(statement, parameters)
