"""Conditions that a request sets on what it is to change (RFC 9110, 13.1 and 13.2).

They are judged where the change is made, in one step with it: what a client has seen may
be changed by another between a look and the change.
"""

from dataclasses import dataclass
from typing import NamedTuple

from reservation_expiry.domain.errors import PreconditionFailed


class Tags(NamedTuple):
    """What If-Match or If-None-Match names: `*`, or entity tags."""

    any: bool
    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Each is None if the request does not set it."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None

    def refuse_unless_met(self, tag: str | None) -> None:
        """`tag` is that of what is there, None if nothing is. Raises PreconditionFailed."""
        if not self.matches(tag):
            raise PreconditionFailed("it is not, or no longer, what If-Match names")
        if not self.is_new(tag):
            raise PreconditionFailed("it is what If-None-Match names")

    def matches(self, tag: str | None) -> bool:
        """If-Match: a weak tag says only that two are alike, which is not enough."""
        wanted = self.if_match
        return wanted is None or (tag is not None and (wanted.any or tag in wanted.strong))

    def is_new(self, tag: str | None) -> bool:
        """If-None-Match: a weak tag is as good as a strong one."""
        known = self.if_none_match
        return (
            known is None
            or tag is None
            or not (known.any or tag in known.strong or tag in known.weak)
        )


NONE = Preconditions()
