"""What begins with a prefix, as a range: for whatever is kept in the order of its text.

Text is in the order of its code points here, in SQLite and, under COLLATE "C", in
PostgreSQL: the order of its UTF-8 bytes, too.
"""

LAST = "\U0010ffff"
BEFORE_SURROGATES, AFTER_SURROGATES = "\ud7ff", "\ue000"  # between them is nothing that can be kept


def prefix_range(prefix: str) -> tuple[str, str | None]:
    """(lower, upper): a key begins with `prefix` if and only if lower <= key < upper.

    `upper` is None if everything from `lower` on begins so.
    """
    kept = prefix.rstrip(LAST)  # nothing comes behind the last code point
    return prefix, kept[:-1] + _successor(kept[-1]) if kept else None


def _successor(character: str) -> str:
    return AFTER_SURROGATES if character == BEFORE_SURROGATES else chr(ord(character) + 1)
