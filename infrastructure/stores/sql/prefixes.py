"""Prefixes as conditions on a column, so that its index serves them."""

from reservation_expiry.domain.prefixes import prefix_range


def begins_with(column: str, prefix: str) -> tuple[str, list[str]]:
    """A condition that the column's text begins so, and its values."""
    lower, upper = prefix_range(prefix)
    if upper is None:
        return f"{column} >= ?", [lower]
    return f"{column} >= ? AND {column} < ?", [lower, upper]
