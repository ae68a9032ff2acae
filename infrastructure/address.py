"""Where a database is, in a user's words: the path of a SQLite file or a PostgreSQL URL."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from infrastructure.errors import InvalidAddress

SQLITE_SCHEME = "sqlite:///"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True)
class PostgresAddress:
    """A connection URL as libpq takes it, options and all. Its `str` has no secret."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        """postgresql://user@host:port/database"""
        from infrastructure.postgres.shown import (
            shown,  # with the driver, which SQLite does without
        )

        return shown(self.url)


Address = Path | PostgresAddress
"""Its `str` may be shown to anybody."""


def address_of(text: str) -> Address:
    """The address that `text` means: a URL, or the path of a file. Raises InvalidAddress."""
    if text.startswith(POSTGRES_SCHEMES):
        return PostgresAddress(text)
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/{1,2}", text)
    if scheme is not None and not text.startswith(SQLITE_SCHEME):
        raise InvalidAddress(
            f"{scheme[0]}... is no database of ours: use the path of a SQLite file, "
            "sqlite:///FILE or postgresql://..."
        )
    return Path(text.removeprefix(SQLITE_SCHEME))
