"""A connection URL as anybody may see it, and whether it can be told what of it is secret."""

import psycopg
from psycopg.conninfo import conninfo_to_dict

NOTHING_SURE = "postgresql://..."


def redacted(url: str) -> str:
    """postgresql://user@host:port/database, by libpq's own reading of the URL.

    Where a part may be a piece of a password that was not escaped, nothing is shown.
    """
    if problem_of(url) is not None:
        return NOTHING_SURE
    parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    user, host, port, database = (parts.get(key, "") for key in ("user", "host", "port", "dbname"))
    hosts = [
        f"{one}:{its_port}" if its_port else one
        for one, its_port in _paired(host.split(","), port.split(","))
    ]
    return f"postgresql://{user}{'@' if user else ''}{','.join(hosts)}/{database}"


def problem_of(url: str) -> str | None:
    """What is wrong with the URL, in words that repeat none of it; None if it can be used.

    libpq reads a password that was not escaped as a piece of something else, and its errors,
    and ours, would show that.
    """
    try:
        parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        return "is not a URL that PostgreSQL's libpq takes"
    ports = parts.get("port", "").replace(",", "")
    if ports and not ports.isdigit():
        return "has a port that is no number: an @, : or / of a password is written %40, %3A or %2F"
    if any("@" in parts.get(key, "") for key in ("host", "dbname")):
        return "has more than one @: those of a password are written %40"
    return None


def _paired(hosts: list[str], ports: list[str]) -> list[tuple[str, str]]:
    """libpq takes one port for all hosts, or one for each."""
    return list(zip(hosts, ports if len(ports) == len(hosts) else ports * len(hosts), strict=False))
