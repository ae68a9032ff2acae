"""The alarm slot: what the one alarm of a reservation or an object is set to, and how far
its attempts have come.

Every transition is a pure function of the slot and now, and says what the slot is after it
and when to look at it next. Storing that, under a compare-and-swap, is for others
(`infrastructure/alarms/claims.py`). The rules are those of Cloudflare's runtime, measured
there, apart from what `alarm.py` says is different.

    set ──begin──▶ claimed ──▶ gone                     it ended well
                      ├─fail──────▶ set, looked at later; parked after the last attempt
                      ├─give back─▶ set, the attempt not counted
                      ├─move──────▶ set, looked at when it is really due
                      └─supersede─▶ another slot: the handler set the next alarm and failed
    parked ──re-drive──▶ set
"""

from typing import NamedTuple

from reservation_expiry.domain.alarm import (
    MAX_ATTEMPTS,
    next_attempt_at_ms,
    not_before_ms,
    retry_delay_ms,
)


class AlarmSlot(NamedTuple):
    """Times are Unix milliseconds. A tuple, because every claim makes some, and a frozen
    dataclass takes three times as long.

    `scheduled_time` is what the alarm was set to, and stays through all attempts; `attempts`
    have begun so far; `token` is the claim that works on it, None if none does; `superseded`
    counts the alarms before this one whose handler set the next and failed; `waits` says that
    it was given back to be looked at later than it was set for.
    """

    scheduled_time: int
    attempts: int = 0
    token: str | None = None
    superseded: int = 0
    waits: bool = False

    @property
    def is_used_up(self) -> bool:
        """Whether no attempt is left, so that it is to be parked instead of begun."""
        return self.attempts >= MAX_ATTEMPTS

    def begin(
        self, token: str, lease_ms: int, now_ms: int, *, counts: bool = True
    ) -> "PlannedSlot":
        """A claim has it, for a lease that is no shorter than the wait after a failure would
        be: so a handler that kills its process backs off like any other."""
        attempts = self.attempts + counts
        claimed = AlarmSlot(self.scheduled_time, attempts, token, self.superseded, self.waits)
        return claimed.keep(lease_ms, now_ms)

    def keep(self, lease_ms: int, now_ms: int) -> "PlannedSlot":
        """The claim goes on having it, from now on for another lease."""
        return PlannedSlot(self, now_ms + max(lease_ms, retry_delay_ms(self.attempts)))

    def fail(self, now_ms: int, random: float) -> "PlannedSlot":
        """The attempt failed: it is tried again later, or parked. `random` is in [0, 1)."""
        free = self._replace(token=None, waits=False)
        return PlannedSlot(free, next_attempt_at_ms(self.attempts, now_ms, random))

    def give_back(self, now_ms: int, after_ms: int = 0) -> "PlannedSlot":
        """As if the claim had never been made; looked at again at once, or after a while."""
        free = self._replace(attempts=self.attempts - 1, token=None, waits=bool(after_ms))
        return PlannedSlot(free, now_ms + after_ms if after_ms else self.scheduled_time)

    def move(self, due_at_ms: int) -> "PlannedSlot":
        """It came early: nothing has been tried, and it is looked at when it is due."""
        return PlannedSlot(self._replace(attempts=0, token=None, waits=False), due_at_ms)

    def supersede(self, next_at_ms: int, now_ms: int) -> "PlannedSlot":
        """Its handler set the next alarm and failed. That once is as the handler wants it;
        again and again it gets slower."""
        superseded = self.superseded + 1
        following = AlarmSlot(next_at_ms, superseded=superseded)
        return PlannedSlot(following, max(next_at_ms, not_before_ms(superseded, now_ms)))

    def redrive(self) -> "PlannedSlot":
        """A fresh start for what it was set to."""
        return set_to(self.scheduled_time)


class PlannedSlot(NamedTuple):
    """A slot, and when to look at it next: Unix milliseconds, None for parked."""

    slot: AlarmSlot
    look_at_ms: int | None


def set_to(at_ms: int) -> PlannedSlot:
    """An alarm as it stands before its first attempt."""
    return PlannedSlot(AlarmSlot(at_ms), at_ms)
