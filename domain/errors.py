"""The root of the error tree, and what the rules refuse.

An error's name says what is so. `code` is stable and machine-readable: clients may
switch on it, and the HTTP door finds its status by it. The infrastructure room adds
its own branches (`infrastructure/errors.py`), and what only a command line can meet is
defined where it is raised.
"""

from typing import Any


class ReservationExpiryError(Exception):
    """Anything this service can say went wrong; every subclass has its own `code`."""

    code = "internal-error"

    @property
    def public(self) -> str:
        """The sentence for clients, who are told no more than they asked about."""
        return str(self)


class DomainError(ReservationExpiryError):
    """A command that the rules refuse. Nothing was changed."""

    code = "refused"


class InvalidReservationId(DomainError):
    """The name is not 3-40 lowercase letters, digits or inner hyphens."""

    code = "invalid-reservation-id"


class InvalidTtl(DomainError):
    """The time to live is not a whole number of seconds within the allowed range."""

    code = "invalid-ttl"


class InvalidNow(DomainError):
    """The explicit clock of a replay is not a positive safe integer."""

    code = "invalid-now"


class NotHeld(DomainError):
    """There is no open hold to act on: never held, or ended already."""

    code = "not-held"


class NotDue(DomainError):
    """The hold is open and its time is not up: `expires_at_ms` lies after now."""

    code = "not-due"

    def __init__(self, expires_at_ms: int) -> None:
        super().__init__(f"the hold runs until {expires_at_ms}")
        self.expires_at_ms = expires_at_ms


class HoldRefused(DomainError):
    """A command that the hold, as it is, does not allow. `code` says which of the reasons;
    `hold` is as it is, and `details` what else a client needs."""

    code = "hold-refused"

    def __init__(self, code: str, hold: object = None, sentence: str = "", **details: Any) -> None:
        super().__init__(sentence or f"the hold is {code.removeprefix('already-')} already")
        self.code = code
        self.hold = hold
        self.details = details


class InvalidObjectName(DomainError):
    """The name cannot be a durable object's."""

    code = "invalid-object-name"


class InvalidSchedule(DomainError):
    """A scheduled event's id, time or period is not one that can be kept."""

    code = "invalid-schedule"


class InvalidToken(DomainError):
    """A token's name, or what is kept of it, is not one that can be used."""

    code = "invalid-token"


class PreconditionFailed(DomainError):
    """What was to be changed is not as the request says that it must be."""

    code = "precondition-failed"
