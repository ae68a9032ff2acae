"""Finding who is to blame for a failure, in few attempts: by halves.

Of n pieces of work that fail together for the sake of one, that one is found in about
2 log2(n) attempts, and the others are done by then.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from reservation_expiry.infrastructure.errors import is_of_one

Item = TypeVar("Item")
Result = TypeVar("Result")


def by_halves(
    items: list[Item], run: Callable[[list[Item]], Result]
) -> Iterator[tuple[list[Item], Result | None, Exception | None]]:
    """Runs all of them at once; where that fails for the sake of one, each half by itself.

    Yields parts that together are `items`, each with what `run` returned for it or with the
    error: of one item its own; of several the database's as a whole, after which nothing more
    is tried.
    """
    parts = [items]
    while parts:
        part = parts.pop()
        try:
            result = run(part)
        except Exception as error:
            if not is_of_one(error):
                rest = [item for waiting in reversed(parts) for item in waiting]
                yield part + rest, None, error
                return
            if len(part) < 2:
                yield part, None, error
                continue
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
        else:
            yield part, result, None
