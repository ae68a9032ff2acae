"""One attempt at an alarm: the claim that it was made under, and how it ended."""

from dataclasses import dataclass

from reservation_expiry.domain.alarm import Outcome
from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.domain.ids import is_object
from reservation_expiry.infrastructure.stores.row_types import AttemptFacts

KEPT_CHARACTERS = 500  # of what an error says


@dataclass(frozen=True, slots=True)
class Claim:
    """One alarm that this process may work on until its lease ends.

    `cut_off` is with how many it was under way, itself included, when an earlier claim of
    it outlived its lease without being settled; 0 if none has.
    """

    id: str
    slot: AlarmSlot
    job_state: bytes  # `slot` as it stands in the row
    cut_off: int = 0

    @property
    def retry_count(self) -> int:
        return self.slot.attempts - 1

    @property
    def is_of_object(self) -> bool:
        return is_object(self.id)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended, at `at_ms`. `error` is None unless it is to be retried or parked.

    `began_at_ms` is None where it took no time of its own: it was decided at that instant.
    """

    claim: Claim
    outcome: Outcome
    at_ms: int
    error: Exception | None = None
    began_at_ms: int | None = None

    @property
    def lateness_ms(self) -> int:
        """How late it began."""
        began_at_ms = self.at_ms if self.began_at_ms is None else self.began_at_ms
        return began_at_ms - self.claim.slot.scheduled_time

    @property
    def duration_ms(self) -> int | None:
        return None if self.began_at_ms is None else self.at_ms - self.began_at_ms

    @property
    def facts(self) -> AttemptFacts:
        """What the kept log of alarms has of it."""
        claim = self.claim
        return AttemptFacts(
            claim.id,
            None,
            claim.slot.scheduled_time,
            self.at_ms,
            self.outcome,
            claim.retry_count,
            self.lateness_ms,
            self.duration_ms,
            None if self.error is None else said_by(self.error),
        )


def said_by(error: BaseException) -> str:
    """Its type and the beginning of what it says, whatever it says: people's code raised it."""
    return f"{type(error).__name__}: {_words(error)}"[:KEPT_CHARACTERS]


def _words(error: BaseException) -> str:
    try:
        return str(error).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    except Exception as worse:
        return f"({type(worse).__name__} while it was asked what it says)"
