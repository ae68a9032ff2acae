"""How the shared statements are run: what a connection of either store can do."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

PAGE_ROWS = 2_000


class Reader(Protocol):
    """Who lends a connection for one statement (`Store`), or has one. Raises StoreError's
    kinds, never the driver's own errors."""

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Every row of the result."""
        ...

    def page(
        self, statement: str, parameters: Sequence[Any], key: str, limit_bytes: int
    ) -> list[Any]:
        """The first rows of a `statement` for events (`pages.py`), which are in order of
        `key`: as many as have `limit_bytes` of state together, but one at least. No others
        are ever in memory."""
        ...


class QuickReader(Reader, Protocol):
    """A reader that raises StoreBusy where it would have to wait. For one thread."""

    def close(self) -> None: ...


class Rows(Reader, Protocol):
    """Reads on one connection."""

    def stream(
        self, statement: str, parameters: Sequence[Any] = (), page_rows: int = PAGE_ROWS
    ) -> Iterator[Any]:
        """The rows one by one, with no more than a page of them in memory."""
        ...
