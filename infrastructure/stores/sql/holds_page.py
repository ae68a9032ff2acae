"""The statement of a page of holds with terms."""

from dataclasses import dataclass
from typing import Any

from reservation_expiry.infrastructure.stores.sql.prefixes import begins_with
from reservation_expiry.infrastructure.stores.sql.tables import RESERVATIONS


@dataclass(frozen=True)
class HoldsWanted:
    """What the page is of. `after` is (deadline in ms, name) of the last one seen."""

    status: str | None = None
    owner: str | None = None
    item: str | None = None
    prefix: str = ""
    due_before_ms: int | None = None
    by_deadline: bool = False
    after: tuple[int, str] = (0, "")


def statement_of(wanted: HoldsWanted, now_ms: int, limit: int) -> tuple[str, list[Any]]:
    """One whose time was up counts as expired, whether or not its alarm has run."""
    wheres, values = ["terms IS NOT NULL"], []
    if wanted.by_deadline:
        wheres.append("(expires_at_ms > ? OR expires_at_ms = ? AND name > ?)")
        values += [wanted.after[0], wanted.after[0], wanted.after[1]]
    else:
        wheres.append("name > ?")
        values.append(wanted.after[1])
    if wanted.prefix:
        begins, bounds = begins_with("name", wanted.prefix)
        wheres.append(begins)
        values += bounds
    if wanted.status == "held":
        wheres.append("status = 'held' AND expires_at_ms > ?")
        values.append(now_ms)
    elif wanted.status == "expired":
        wheres.append("(status = 'expired' OR status = 'held' AND expires_at_ms <= ?)")
        values.append(now_ms)
    elif wanted.status is not None:
        wheres.append("status = ?")
        values.append(wanted.status)
    if wanted.owner is not None:
        wheres.append("owner = ?")
        values.append(wanted.owner)
    if wanted.item is not None:
        wheres.append("name IN (SELECT hold FROM lines WHERE id > ? AND id < ?)")
        values += [f"{wanted.item}/", f"{wanted.item}0"]
    if wanted.due_before_ms is not None:
        wheres.append("status = 'held' AND expires_at_ms < ?")
        values.append(wanted.due_before_ms)
    order = "expires_at_ms, name" if wanted.by_deadline else "name"
    select = f"SELECT {RESERVATIONS.selected} FROM reservations WHERE {' AND '.join(wheres)}"
    return f"{select} ORDER BY {order} LIMIT ?", [*values, limit]
