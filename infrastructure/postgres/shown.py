"""A connection URL as anybody may see it."""

import psycopg
from psycopg.conninfo import conninfo_to_dict

NOTHING_SURE = "postgresql://..."


def shown(url: str) -> str:
    """postgresql://user@host:port/database, by libpq's own reading of the URL.

    Where a part may be a piece of a password that was not escaped, nothing is shown.
    """
    try:
        parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        return NOTHING_SURE
    user, host, port = (parts.get(key, "") for key in ("user", "host", "port"))
    database = parts.get("dbname", "")
    ports = port.replace(",", "")
    if (ports and not ports.isdigit()) or any("@" in part for part in (host, database)):
        return NOTHING_SURE
    hosts = [
        f"{one}:{its_port}" if its_port else one
        for one, its_port in _paired(host.split(","), port.split(","))
    ]
    return f"postgresql://{user}{'@' if user else ''}{','.join(hosts)}/{database}"


def _paired(hosts: list[str], ports: list[str]) -> list[tuple[str, str]]:
    """libpq takes one port for all hosts, or one for each."""
    return list(zip(hosts, ports if len(ports) == len(hosts) else ports * len(hosts), strict=False))
