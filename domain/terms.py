"""What a hold is of, and who may act on it."""

import hmac
from dataclasses import dataclass, replace
from typing import NamedTuple

MAX_EXTENSIONS = 1_000


class Line(NamedTuple):
    """Units of one item."""

    item: str
    units: int


@dataclass(frozen=True, slots=True)
class Terms:
    """`until_ms`: beyond which nothing extends the hold. `secret`: the SHA-256 of its token,
    in hexadecimal. `metadata`: a JSON object, as text."""

    until_ms: int
    lines: tuple[Line, ...] = ()
    secret: str | None = None
    owner: str | None = None
    metadata: str | None = None
    extensions: int = 0

    def extended(self) -> "Terms":
        return replace(self, extensions=self.extensions + 1)

    def knows(self, secret: str | None) -> bool:
        """Whether who has this secret, None for none, may act on the hold."""
        if self.secret is None:
            return True
        return secret is not None and hmac.compare_digest(self.secret, secret)


def summed(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """One line for each item, in the order of their first."""
    units: dict[str, int] = {}
    for line in lines:
        units[line.item] = units.get(line.item, 0) + line.units
    return tuple(Line(*pair) for pair in units.items())
