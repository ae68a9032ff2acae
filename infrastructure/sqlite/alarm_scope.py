"""Which alarm rows a process can run, as SQL."""

from infrastructure.projections import AlarmScope

_NOT_ELSEWHERE = """ AND NOT EXISTS (
    SELECT 1 FROM ownerships JOIN owners ON owners.token = ownerships.owner
    WHERE ownerships.id = alarms.id AND ownerships.owner <> ? AND owners.until_ms > ?)"""


def in_scope(scope: AlarmScope, now_ms: int) -> tuple[str, list[object]]:
    """A condition on the table `alarms`, and its values."""
    ranges = " OR ".join(["id >= ? AND id < ?"] * len(scope.prefixes)) or "0"
    values: list[object] = []
    for prefix in scope.prefixes:
        values += [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
    if scope.owner is None:
        return f"({ranges})", values
    return f"({ranges}){_NOT_ELSEWHERE}", [*values, scope.owner, now_ms]
