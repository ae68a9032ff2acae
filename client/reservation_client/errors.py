"""What a service may refuse, and a class for each of its codes."""

from collections.abc import Mapping
from typing import Any


class ReservationError(Exception):
    """A service said no, or could not be asked. `code` is its own word for why.

    `hold` is the hold as it is, where that matters; `status` the HTTP status, None if there
    was no answer at all.
    """

    code = ""

    def __init__(
        self,
        detail: str,
        *,
        code: str = "",
        status: int | None = None,
        hold: Mapping[str, Any] | None = None,
        items: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.code = code or self.code
        self.status = status
        self.hold = hold
        self.items = items


class Unavailable(ReservationError):
    """It did not answer, or was too busy, as often as it was asked. With the same key and
    the same request it may be asked again."""


class HoldNotFound(ReservationError):
    code = "hold-not-found"


class NotYours(ReservationError):
    """The hold was taken with another token."""

    code = "not-yours"


class AlreadyHeld(ReservationError):
    code = "already-held"


class AlreadyExpired(ReservationError):
    """Its time was up before this was asked, by the service's clock."""

    code = "already-expired"


class AlreadyConfirmed(ReservationError):
    code = "already-confirmed"


class AlreadyReleased(ReservationError):
    code = "already-released"


class AlreadyCancelled(ReservationError):
    code = "already-cancelled"


class NotHeld(ReservationError):
    code = "not-held"


class NotConfirmed(ReservationError):
    code = "not-confirmed"


class NotAvailable(ReservationError):
    """`items` has what is short: item, wanted, free."""

    code = "not-available"


class TooManyExtensions(ReservationError):
    code = "too-many-extensions"


class VersionMismatch(ReservationError):
    code = "version-mismatch"


class BeyondUntil(ReservationError):
    code = "beyond-until"


class WouldShorten(ReservationError):
    code = "would-shorten"


class IdempotencyKeyReused(ReservationError):
    code = "idempotency-key-reused"


class InvalidBody(ReservationError):
    code = "invalid-body"


class Unauthenticated(ReservationError):
    code = "unauthenticated"


class ScopeNeeded(ReservationError):
    code = "scope-needed"


class OtherLog(ReservationError):
    """The log that a position is of is not there any more."""

    code = "other-log"


BY_CODE: Mapping[str, type[ReservationError]] = {
    error.code: error for error in ReservationError.__subclasses__() if error.code
}
