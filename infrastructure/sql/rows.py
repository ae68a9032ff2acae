"""How the shared statements are run: what a connection of either store can do."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """Reads on one connection. Raises StoreError's kinds, never the driver's own errors."""

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Every row of the result."""
        ...

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Any]:
        """The rows one by one, with no more than a page of them in memory."""
        ...
