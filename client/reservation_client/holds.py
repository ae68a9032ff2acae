"""A hold, as a service showed it last."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HoldState:
    """Times are Unix milliseconds by the service's clock; `now` is when it said so.

    `status` is held, confirmed, released, cancelled or expired. `lines` are units by item.
    """

    name: str
    status: str
    version: int
    created_at: int
    expires_at: int
    until: int
    ended_at: int | None
    lines: Mapping[str, int]
    owner: str | None
    metadata: Mapping[str, Any] | None
    now: int

    @property
    def seconds_left(self) -> float:
        """As it was when the service said so: its clock counts, and no other."""
        return max(0, self.expires_at - self.now) / 1000


def state_of(found: Mapping[str, Any]) -> HoldState:
    return HoldState(
        found["hold"],
        found["status"],
        found["version"],
        found["createdAt"],
        found["expiresAt"],
        found["until"],
        found["endedAt"],
        {line["item"]: line["units"] for line in found["lines"]},
        found["owner"],
        found["metadata"],
        found["now"],
    )
