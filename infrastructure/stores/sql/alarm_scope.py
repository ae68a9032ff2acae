"""Which alarm rows a process can run, as SQL."""

from reservation_expiry.domain.ids import is_object
from reservation_expiry.infrastructure.stores.row_types import AlarmScope
from reservation_expiry.infrastructure.stores.sql.prefixes import begins_with

_NOT_ELSEWHERE = """ AND NOT EXISTS (
    SELECT 1 FROM ownerships JOIN owners ON owners.token = ownerships.owner
    WHERE ownerships.id = alarms.id AND ownerships.owner <> ? AND owners.until_ms > ?)"""


def in_scope(scope: AlarmScope, now_ms: int) -> tuple[str, list[object]]:
    """A condition on the table `alarms`, and its values."""
    wheres: list[str] = []
    values: list[object] = []
    for prefix in scope.prefixes:
        begins, bounds = begins_with("alarms.id", prefix)
        # A CASE, because no planner looks into it: whoever asks wants the earliest first, from
        # the index of times. A bare range of ids would lead to gathering all, to be sorted.
        where = f"CASE WHEN {begins} THEN TRUE ELSE FALSE END"
        values += bounds
        if is_object(prefix):  # a reservation is in nobody's hands
            where += _NOT_ELSEWHERE
            values += [scope.owner, now_ms]
        wheres.append(where)
    return f"({' OR '.join(wheres) or '1 = 0'})", values
