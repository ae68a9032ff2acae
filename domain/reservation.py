"""The reservation: one aggregate per name, held for a while, expired exactly once.

An alarm is delivered at least once: early, twice, late, after a new hold, by two
machines. The aggregate is what makes its effect happen once, by refusing `Expired`
unless the hold is open and due. That refusal is the whole idempotency.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, assert_never

from reservation_expiry.domain.errors import (
    HoldRefused,
    InvalidNow,
    InvalidTtl,
    NotDue,
    NotHeld,
)
from reservation_expiry.domain.events import (
    AlarmScheduled,
    Cancelled,
    Confirmed,
    Expired,
    Extended,
    Held,
    Released,
    ReservationEvent,
)
from reservation_expiry.domain.ids import reservation_name
from reservation_expiry.domain.terms import Terms

MIN_TTL_SECONDS = 5
MAX_TTL_SECONDS = 3600
MAX_NOW_MS = 2**53 - 1  # the largest integer that a JSON number carries exactly

Status = Literal["held", "expired", "confirmed", "released", "cancelled"]


class Reservation(NamedTuple):
    """The state of one reservation after `version` events. Times are Unix milliseconds.

    `alarm_at_ms` is when its alarm is scheduled, None when it has none. A tuple, because a
    replay makes one for every event, and a frozen dataclass takes five times as long.
    """

    id: str
    version: int
    status: Status
    created_at_ms: int
    expires_at_ms: int
    expired_at_ms: int | None
    expiration_count: int
    alarm_at_ms: int | None
    ended_at_ms: int | None = None  # if it was confirmed, released or cancelled
    terms: Terms | None = None  # None for a hold by the contract's route

    @property
    def name(self) -> str:
        return reservation_name(self.id)


def hold(
    reservation: Reservation | None, reservation_id: str, ttl_seconds: int, now_ms: int
) -> tuple[ReservationEvent, ...]:
    """Hold it from now for `ttl_seconds`, whatever state it is in.

    A new hold resets everything and moves the alarm. A hold whose time was up, and whose
    alarm had not come by yet, ends first: whoever follows the log hears of every end. One
    that still runs does not end, for nothing becomes free. Raises InvalidTtl unless
    MIN_TTL_SECONDS <= ttl_seconds <= MAX_TTL_SECONDS, and HoldRefused where a hold with
    terms lasts or was confirmed.
    """
    refuse_if_guarded(reservation, now_ms)
    if not MIN_TTL_SECONDS <= ttl_seconds <= MAX_TTL_SECONDS:
        raise InvalidTtl(
            f"a hold lasts from {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS} seconds, not {ttl_seconds}"
        )
    ended = _end_if_due(reservation, now_ms)
    version = (reservation.version if reservation is not None else 0) + len(ended)
    expires_at_ms = now_ms + ttl_seconds * 1000
    return (
        *ended,
        Held(reservation_id, version + 1, now_ms, expires_at_ms),
        AlarmScheduled(reservation_id, version + 2, expires_at_ms),
    )


def expire(reservation: Reservation | None, now_ms: int) -> tuple[Expired, ...]:
    """End the hold because its time is up; at exactly its instant it is due.

    Raises NotHeld if there is no open hold, NotDue if it is open but not due yet, and
    InvalidNow if the clock is not a positive safe integer.
    """
    if not 1 <= now_ms <= MAX_NOW_MS:
        raise InvalidNow(f"a clock shows from 1 to {MAX_NOW_MS} ms, not {now_ms}")
    if reservation is None or reservation.status != "held":
        raise NotHeld("there is no open hold")
    ended = _end_if_due(reservation, now_ms)
    if not ended:
        raise NotDue(reservation.expires_at_ms)
    return ended


def refuse_if_guarded(reservation: Reservation | None, now_ms: int) -> None:
    """Raises HoldRefused unless the contract's routes may replace it."""
    if reservation is None or reservation.terms is None:
        return
    if reservation.status == "confirmed":
        raise HoldRefused("already-confirmed", reservation)
    if reservation.status == "held" and now_ms < reservation.expires_at_ms:
        raise HoldRefused("already-held", reservation)


def _end_if_due(reservation: Reservation | None, now_ms: int) -> tuple[Expired, ...]:
    if reservation is None or reservation.status != "held" or reservation.expires_at_ms > now_ms:
        return ()
    return (Expired(reservation.id, reservation.version + 1, now_ms),)


def apply(reservation: Reservation | None, event: ReservationEvent) -> Reservation | None:
    """The state after `event`. Total: every event applies to every state.

    An event that speaks of a hold where there is none (only a damaged log has one)
    leaves nothing to speak of, and so None.
    """
    if type(event) is Held:
        return Reservation(
            event.originator_id,
            event.originator_version,
            "held",
            event.created_at_ms,
            event.expires_at_ms,
            None,
            0,
            None,
            None,
            event.terms,
        )
    if reservation is None:
        return None
    if type(event) is Expired:
        return Reservation(
            reservation.id,
            event.originator_version,
            "expired",
            reservation.created_at_ms,
            reservation.expires_at_ms,
            event.expired_at_ms,
            reservation.expiration_count + 1,
            None,
            None,
            reservation.terms,
        )
    if type(event) is AlarmScheduled:
        version, at_ms = event.originator_version, event.scheduled_time_ms
        return Reservation(reservation.id, version, *reservation[2:7], at_ms, *reservation[8:])
    return _after_command(reservation, event)


def _after_command(
    reservation: Reservation, event: Extended | Confirmed | Released | Cancelled
) -> Reservation:
    """What only holds with terms go through."""
    version = event.originator_version
    if type(event) is Extended:
        terms = None if reservation.terms is None else reservation.terms.extended()
        return reservation._replace(version=version, expires_at_ms=event.expires_at_ms, terms=terms)
    ended: Status
    if type(event) is Confirmed:
        ended = "confirmed"
    elif type(event) is Released:
        ended = "released"
    elif type(event) is Cancelled:
        ended = "cancelled"
    else:
        assert_never(event)
    return reservation._replace(
        version=version, status=ended, ended_at_ms=event.at_ms, alarm_at_ms=None
    )


def project(initial: Reservation | None, events: Iterable[ReservationEvent]) -> Reservation | None:
    """Replay `events` on top of `initial` (a projector function of `eventsourcing`)."""
    state = initial
    for event in events:
        state = apply(state, event)
    return state


def starts_anew(event: ReservationEvent) -> bool:
    """Whether the state after `event` depends on nothing that came before it."""
    return type(event) is Held


def broken_rule(reservation: Reservation | None, event: ReservationEvent) -> str | None:
    """What an event in a log says that the rules would never have decided, if anything.

    `reservation` is the state before it.
    """
    if type(event) is Held:
        return None if event.expires_at_ms > event.created_at_ms else "a hold of no length"
    if type(event) is Cancelled:
        confirmed = reservation is not None and reservation.status == "confirmed"
        return None if confirmed else "Cancelled where nothing is confirmed"
    if reservation is None or reservation.status != "held":
        return f"{type(event).__name__} where nothing is held"
    if type(event) is Confirmed or type(event) is Released:
        if event.at_ms < reservation.expires_at_ms:
            return None
        return f"{type(event).__name__} at {event.at_ms}, not before {reservation.expires_at_ms}"
    if type(event) is Extended:
        longest = reservation.terms.until_ms if reservation.terms is not None else 0
        return None if event.expires_at_ms <= longest else f"Extended beyond {longest}"
    if type(event) is Expired and event.expired_at_ms < reservation.expires_at_ms:
        return f"Expired at {event.expired_at_ms}, before {reservation.expires_at_ms}"
    if type(event) is AlarmScheduled and event.scheduled_time_ms != reservation.expires_at_ms:
        return f"AlarmScheduled for {event.scheduled_time_ms}, not {reservation.expires_at_ms}"
    return None
