"""Where a database is, in a user's words: the path of a SQLite file or a PostgreSQL URL.

The one place that says what an address is, for `--database`, RESERVATION_DATABASE and make
alike. What is neither is refused with a sentence that repeats none of it, for it may be a
secret; nothing is ever made from it.
"""

import re
import stat
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from reservation_expiry.infrastructure.errors import InvalidAddress

SQLITE_SCHEME = "sqlite:///"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
ADDRESSES = "use the path of a SQLite file, sqlite:///FILE or postgresql://..."
DEFAULT_NAMESPACE = "default"  # the database itself
SQLITES_OWN = ("-wal", "-shm", "-journal")  # what SQLite puts beside a database

_UNPRINTABLE = {"Cc", "Cs", "Zl", "Zp"}  # control characters, bytes that are no UTF-8, new lines
_QUOTES = "\"'`\u201c\u201d\u2018\u2019\u201e"
# What is meant as something else, and would only by mistake be a file of that name. What
# begins with / or . is a path whatever follows.
_NO_FILE_NAMES = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), problem)
    for pattern, problem in (
        (r"[a-z][\w.+-]*:/", "for its scheme is none that is known here"),
        (
            r"(file|jdbc|odbc|sqlite3?|postgres(ql)?|psql|mysql|mariadb):",
            "for it begins like a URL",
        ),
        (r".*://", "for it has a URL in it"),
        (r":\w+:$", "for one in memory would be another one in each process"),
        (r"[^/]*:.*@|[^/:]+:[0-9]{1,5}(/|$)", "for it looks like a host with a user or a port"),
        (
            r"(.*\s)?(host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*="
            r"|.*=.*;",
            "for it looks like connection parameters",
        ),
        (r"[~$<{]|%\w+%$", "for it begins with what was to be filled in"),
        (r"-", "for it begins like an option"),
    )
)


@dataclass(frozen=True)
class PostgresAddress:
    """A connection URL as libpq takes it, options and all. Its `str` has no secret."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        """postgresql://user@host:port/database"""
        from reservation_expiry.infrastructure.stores.postgres.redacted_url import (
            redacted,  # with the driver: a file needs none
        )

        return redacted(self.url)


Address = Path | PostgresAddress
"""Its `str` may be shown to anybody."""


def address_of(text: str) -> Address:
    """The address that `text` means: a URL, or the path of a file.

    Raises InvalidAddress for what is neither, and for a path where something is that is no
    file. `./NAME` is always a path.
    """
    if text.startswith(POSTGRES_SCHEMES):
        return _postgres_address(text)
    path = file_named(text.removeprefix(SQLITE_SCHEME), ADDRESSES)
    if path.name.endswith(SQLITES_OWN):
        raise InvalidAddress(f"{path} is the name of a part of another database")
    refuse_no_file(path)
    return path


def file_named(text: str, allowed: str = "give the path of a file") -> Path:
    """The path of a file that `text` means. Raises InvalidAddress if it is to mean something
    else, by its looks; the sentence ends with what is `allowed`."""
    problem = _problem_around(text)
    if problem is None and not text.startswith(("/", ".")):
        for pattern, looks in _NO_FILE_NAMES:
            if pattern.match(text):
                allowed += " (if a file is really named so, ./NAME)"
                problem = f"is no file of ours, {looks}"
                break
    if problem is None and text.rpartition("/")[2] in ("", ".", ".."):
        problem = "is a folder"
    if problem is not None:
        raise InvalidAddress(f"that {problem}: {allowed}")
    return Path(text)


def _problem_around(text: str) -> str | None:
    if any(unicodedata.category(character) in _UNPRINTABLE for character in text):
        return "has a character in it that is not printable UTF-8 text"
    if not text or text != text.strip():
        return "is empty, or has a blank at an end"
    if text[0] in _QUOTES or text[-1] in _QUOTES:
        return "has quotes around it"
    return None


def _postgres_address(url: str) -> PostgresAddress:
    from reservation_expiry.infrastructure.stores.postgres.redacted_url import problem_of

    problem = _problem_around(url) or problem_of(url)
    if problem is not None:
        raise InvalidAddress(f"the postgresql:// URL {problem}")
    return PostgresAddress(url)


def namespaced(address: Address, name: str) -> Address:
    """Where a namespace is, beside the database that is at an address: `reservations.NAME.db`
    beside `reservations.db`, or the schema `rx_NAME`, with `_` for each hyphen, of a server's
    database. `name` is one (domain/ids.py)."""
    if name == DEFAULT_NAMESPACE:
        return address
    if isinstance(address, Path):
        return address.with_name(f"{address.stem}.{name}{address.suffix}")
    return PostgresAddress(_with_schema(address.url, f"rx_{name.replace('-', '_')}"))


def _with_schema(url: str, schema: str) -> str:
    """With the search path set, behind what options the URL has already."""
    setting = quote(f"-csearch_path={schema}")
    place, _, query = url.partition("?")
    parts = query.split("&") if query else []
    for number, part in enumerate(parts):
        if part.startswith("options="):
            parts[number] = f"{part}%20{setting}"
            break
    else:
        parts.append(f"options={setting}")
    return f"{place}?{'&'.join(parts)}"


def refuse_no_file(path: Path) -> None:
    """Raises InvalidAddress if there is something at `path` that is not a regular file, or
    if there can be none."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # whoever opens it says so
    except OSError as error:  # too long a name, a loop of links
        raise InvalidAddress(f"{_short(path)}: {(error.strerror or '').lower()}") from error
    if stat.S_ISDIR(mode):
        raise InvalidAddress(f"{path} is a folder")
    if not stat.S_ISREG(mode) or str(path.resolve()).startswith(("/proc/", "/sys/")):
        raise InvalidAddress(f"{path} is a device, a pipe or a socket, not a file")


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-15:]}"
