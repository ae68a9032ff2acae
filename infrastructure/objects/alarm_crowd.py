"""What is under way of objects' alarms in this process, for the clock that claims more.

Suspects (`infrastructure/alarms/company.py`) get the process's objects to themselves: what
runs has a little time to end first, and for a while no others are begun beside them. Safe
from any thread: the clock asks, the event loop tells.
"""

import threading
import time
from collections.abc import Sequence

from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.claims import Claimed
from reservation_expiry.infrastructure.alarms.company import Crowd, together_at

QUIET_SECONDS = 2.0  # how long suspects wait for what runs to end
ALONE_SECONDS = 10.0  # how long they have the process to themselves, if they take so long
COMING_SECONDS = 5.0  # within which what was claimed is begun, or was given back


class AlarmCrowd:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: dict[object, Claim] = {}  # by whatever runs them
        self._coming: dict[str, tuple[Claim, float]] = {}
        self._quiet_since: float | None = None
        self._alone_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether more may be claimed now."""
        with self._guard:
            now = time.monotonic()
            waits = self._quiet_since is not None and now - self._quiet_since < QUIET_SECONDS
            is_reserved = waits or now < self._alone_until
            return not (is_reserved and self._under_way(now))

    def look(self) -> tuple[Crowd, Sequence[Claim]]:
        with self._guard:
            under_way = self._under_way(time.monotonic())
            may_wait = self._quiet_since is None
        alone = [claim for claim in under_way if together_at(claim.slot.token or "") == 1]
        fresh = tuple(claim.id for claim in alone if not claim.cut_off)
        prime = tuple(claim.id for claim in alone if claim.cut_off)
        return Crowd(len(under_way), fresh, prime, may_wait), under_way

    def expect(self, claimed: Claimed) -> None:
        """What was claimed is on its way to the event loop."""
        with self._guard:
            now = time.monotonic()
            if claimed.waiting:
                self._quiet_since = now
            if claimed.joined:
                joined = {claim.id: claim for claim in claimed.joined}
                self._running = {by: joined.get(c.id, c) for by, c in self._running.items()}
            coming = [claim for claim in claimed.claims if claim.is_of_object]
            self._coming |= {claim.id: (claim, now) for claim in coming}
            suspects = {claim.id for claim in coming if claim.cut_off}
            if suspects - {claim.id for claim in self._running.values()}:
                self._quiet_since, self._alone_until = None, now + ALONE_SECONDS

    def began(self, by: object, claim: Claim) -> None:
        with self._guard:
            self._coming.pop(claim.id, None)
            self._running[by] = claim

    def ended(self, by: object) -> bool:
        """Whether somebody has waited for this, and it was the last."""
        with self._guard:
            self._running.pop(by, None)
            is_waited_for = self._quiet_since is not None or self._alone_until > 0
            if not is_waited_for or self._under_way(time.monotonic()):
                return False
            self._quiet_since, self._alone_until = None, 0.0
            return True

    def _under_way(self, now: float) -> list[Claim]:
        self._coming = {
            id: (claim, at) for id, (claim, at) in self._coming.items() if now - at < COMING_SECONDS
        }
        here = {claim.id for claim in self._running.values()}
        coming = [claim for claim, _ in self._coming.values() if claim.id not in here]
        return [*self._running.values(), *coming]
