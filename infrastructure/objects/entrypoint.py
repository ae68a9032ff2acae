"""The front door of a file of objects: what answers HTTP, and what it is given."""

from collections.abc import Iterator, Mapping
from typing import Any


class WorkerEntrypoint:
    """The base of class `Default`, made anew for each request.

    `GET /healthz` and `GET /readyz` are answered for it, unless it says `answers_health`: then
    they come to its `fetch` like every other path.
    """

    answers_health = False

    def __init__(self, ctx: Any, env: Any) -> None:
        self.ctx = ctx
        self.env = env


class Bindings(Mapping[str, Any]):
    """`env`: namespaces of objects and plain values, as attributes or by key."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(self._values) or "none"
            raise AttributeError(f"there is no binding {name}; there are: {known}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
