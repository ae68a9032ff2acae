"""What an operator may set, with the limits that hold for everybody.

The command line fills this in from options and from RESERVATION_* variables
(api/cli/serve.py); nothing below it reads the environment.
"""

from dataclasses import dataclass
from pathlib import Path

from reservation_expiry.infrastructure.stores.address import DEFAULT_NAMESPACE, Address

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
DEFAULT_DATABASE = Path("data/reservations.db")

BODY_LIMIT_BYTES = 16 * 1024 * 1024
SHUTDOWN_GRACE_SECONDS = 10
KEPT_ATTEMPTS = 100_000  # at alarms


@dataclass(frozen=True)
class Settings:
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    database: Address = DEFAULT_DATABASE
    namespace: str = DEFAULT_NAMESPACE  # whose database that is
    workers: int = 1
    log_level: str = "info"
    log_format: str = "text"  # or "json"
    replay_route: bool = True
    longest_hold_seconds: int = 86_400  # of holds with terms
    kept_attempts: int = KEPT_ATTEMPTS
    allow_hosts: tuple[str, ...] = ()  # its names, besides loopback's
    insecure: bool = False  # beyond loopback although anybody may ask
    auth: str = "off"  # or "required": nothing but /healthz without a token
