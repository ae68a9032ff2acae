"""Holds with terms: put, extended, confirmed, released and cancelled.

The clock decides: at or after its instant a hold has expired, however late its alarm is.
Each function returns the events of the command, none if the same command ended the hold
before, and raises HoldRefused. That a hold is overdue is the caller's to record first.
"""

from reservation_expiry.domain.errors import HoldRefused
from reservation_expiry.domain.events import (
    AlarmScheduled,
    Cancelled,
    Confirmed,
    Extended,
    Held,
    Released,
    ReservationEvent,
)
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.domain.terms import MAX_EXTENSIONS, Terms

Events = tuple[ReservationEvent, ...]


def put(
    hold: Reservation | None,
    hold_id: str,
    terms: Terms,
    ttl_seconds: int,
    secret: str | None,
    now_ms: int,
) -> Events:
    """Holds it anew; what is held in time, with its token: these lines and this deadline."""
    if hold is not None and hold.status == "confirmed":
        raise HoldRefused("already-confirmed", hold)
    expires_at_ms = now_ms + ttl_seconds * 1000
    if hold is not None and hold.status == "held":
        if hold.terms is None or hold.terms.secret is None or not hold.terms.knows(secret):
            raise HoldRefused("already-held", hold)
        if expires_at_ms > hold.terms.until_ms:
            raise HoldRefused(
                "beyond-until", hold, f"nothing extends it beyond {hold.terms.until_ms}"
            )
    version = 0 if hold is None else hold.version
    return (
        Held(hold_id, version + 1, now_ms, expires_at_ms, terms),
        AlarmScheduled(hold_id, version + 2, expires_at_ms),
    )


def extend(
    hold: Reservation | None, secret: str | None, expires_at_ms: int, shorten: bool
) -> Events:
    """To another deadline; to an earlier one only if it is to `shorten`."""
    hold = _owned(hold, secret)
    _refuse_unless_held(hold)
    terms = hold.terms
    if terms is None:  # `_owned` has seen to that
        raise ValueError(f"{hold.id} has no terms")
    if expires_at_ms > terms.until_ms:
        raise HoldRefused("beyond-until", hold, f"nothing extends it beyond {terms.until_ms}")
    if expires_at_ms < hold.expires_at_ms and not shorten:
        raise HoldRefused("would-shorten", hold, 'an earlier deadline needs "shorten":true')
    if terms.extensions >= MAX_EXTENSIONS:
        raise HoldRefused(
            "too-many-extensions", hold, f"it was extended {MAX_EXTENSIONS} times already"
        )
    return (
        Extended(hold.id, hold.version + 1, expires_at_ms),
        AlarmScheduled(hold.id, hold.version + 2, expires_at_ms),
    )


def confirm(hold: Reservation | None, secret: str | None, now_ms: int) -> Events:
    hold = _owned(hold, secret)
    if hold.status == "confirmed":
        return ()
    _refuse_unless_held(hold)
    return (Confirmed(hold.id, hold.version + 1, now_ms),)


def release(hold: Reservation | None, secret: str | None, now_ms: int) -> Events:
    hold = _owned(hold, secret)
    if hold.status == "released":
        return ()
    _refuse_unless_held(hold)
    return (Released(hold.id, hold.version + 1, now_ms),)


def cancel(hold: Reservation | None, secret: str | None, now_ms: int) -> Events:
    hold = _owned(hold, secret)
    if hold.status == "cancelled":
        return ()
    if hold.status != "confirmed":
        raise HoldRefused("not-confirmed", hold, f"the hold is {hold.status}, not confirmed")
    return (Cancelled(hold.id, hold.version + 1, now_ms),)


def _owned(hold: Reservation | None, secret: str | None) -> Reservation:
    if hold is None or hold.terms is None:
        raise HoldRefused("hold-not-found", None, "there is no such hold with terms")
    if not hold.terms.knows(secret):
        raise HoldRefused("not-yours", None, "the hold needs the Hold-Token that it was put with")
    return hold


def _refuse_unless_held(hold: Reservation) -> None:
    if hold.status != "held":
        raise HoldRefused(f"already-{hold.status}", hold)
