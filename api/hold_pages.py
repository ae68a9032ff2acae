"""Reading holds: a page of them, and one as it was."""

from typing import Any

from reservation_expiry.api.hold_answers import hold_fields
from reservation_expiry.api.hold_routes import InvalidBody
from reservation_expiry.api.read_routes import (
    DEFAULT_LIMIT,
    MAX_INTEGER,
    MAX_LIMIT,
    choice,
    integer,
    text,
)
from reservation_expiry.domain.ids import NAME_PATTERN
from reservation_expiry.domain.reservation import Reservation, apply
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.sql.holds_page import HoldsWanted

STATUSES = ("held", "expired", "confirmed", "released", "cancelled")
SORTS = ("name", "deadline")


def page_of_holds(application: ReservationApplication) -> dict[str, Any]:
    """Holds with terms that the query asks for, and the cursor of the next page."""
    now_ms, limit = application.clock.now_ms(), integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
    sort = choice("sort", SORTS) or "name"
    wanted = HoldsWanted(
        status=choice("status", STATUSES),
        owner=text("owner"),
        item=text("item"),
        prefix=text("prefix") or "",
        due_before_ms=integer("dueBefore", None, 0, MAX_INTEGER),
        by_deadline=sort == "deadline",
        after=_after(sort),
    )
    found = application.queries.holds(wanted, now_ms, limit + 1)
    page = found[:limit]
    return {
        "holds": [{**hold_fields(state, now_ms), "now": now_ms} for state in page],
        "next": _cursor(page[-1], sort) if len(found) > limit else None,
        "now": now_ms,
    }


def replayed(
    application: ReservationApplication, hold_id: str, at_ms: int | None, version: int | None
) -> Reservation | None:
    """The state after all that was recorded up to a time, or after so many events."""
    state: Reservation | None = None
    decode = application.mapper.decode
    for row in application.queries.history(hold_id):
        if at_ms is not None and row.recorded_at_ms > at_ms:
            break
        if version is not None and row.originator_version > version:
            break
        state = apply(state, decode(hold_id, row.originator_version, row.topic, row.state))
    return None if version is not None and (state is None or state.version < version) else state


def _cursor(state: Reservation, sort: str) -> str:
    return state.name if sort == "name" else f"{state.expires_at_ms}:{state.name}"


def _after(sort: str) -> tuple[int, str]:
    """(deadline, name) of the last one seen."""
    cursor = text("cursor") or ""
    deadline, colon, name = cursor.rpartition(":")
    if bool(cursor) and bool(colon) != (sort == "deadline"):
        raise InvalidBody("cursor must be the `next` of a page that was sorted in the same way.")
    if colon and not deadline.isdecimal():
        raise InvalidBody(f"cursor is `next` of a page: a deadline and a name ({NAME_PATTERN}).")
    return int(deadline or 0), name
