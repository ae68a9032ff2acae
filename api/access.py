"""Who may ask: in front of everything that a process serves. (`gate.py` is for tokens.)

A service without tokens trusts whoever reaches it, and on loopback that is whoever is logged
in to this machine. A page in their browser must not be: browsers send a page's requests to
127.0.0.1 for it, simple POSTs without asking anybody. They say whose page it is in Origin; and
where a page has its own name resolve to 127.0.0.1 (DNS rebinding), Host has that name.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address
from socket import SOCK_STREAM, getaddrinfo
from typing import TYPE_CHECKING

from reservation_expiry.api.request_ids import HEADER, take_sent
from reservation_expiry.api.requests import BadHost, RequestRefused, Scope
from reservation_expiry.infrastructure.settings import Settings

if TYPE_CHECKING:
    from reservation_expiry.api.dashboard.sessions import Sessions


class ForeignHost(RequestRefused):
    """A Host that is not one of this service's names."""

    code = "foreign-host"

    def __init__(self) -> None:
        super().__init__(
            "this service answers to localhost and loopback addresses, and to names that it "
            "was started with (serve --allow-host NAME); the Host header has another"
        )


class ForeignOrigin(RequestRefused):
    """A page of another origin, in somebody's browser."""

    code = "foreign-origin"

    def __init__(self) -> None:
        super().__init__(
            "pages of other origins may not use this service (serve --allow-host NAME)"
        )


class Access:
    """Lets requests pass, or says what is wrong with them.

    `allow_hosts` are names this service has besides loopback's. `any_host` is for one that
    others than this machine can reach, which cannot know all its names.
    """

    sessions: "Sessions | None" = None  # of browsers, where tokens are needed

    def __init__(self, allow_hosts: Collection[str] = (), *, any_host: bool = False) -> None:
        self._allowed = frozenset(name.lower() for name in allow_hosts)
        self._any_host = any_host
        self._is_ours = lru_cache(maxsize=1024)(self._answers_to)

    @classmethod
    def of(cls, settings: Settings) -> "Access":
        return cls(settings.allow_hosts, any_host=cls.reaches_others(settings))

    @staticmethod
    def reaches_others(settings: Settings) -> bool:
        return not is_loopback(settings.host)

    def check(self, scope: Scope) -> None:
        """Raises BadHost, ForeignHost or ForeignOrigin."""
        host = origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    raise BadHost
                host = value
            elif name == b"origin":
                origin = value
            elif name == HEADER:
                take_sent(scope, value)
        if host is None:
            if scope["http_version"] != "1.0":  # which knows no Host and may leave it out
                raise BadHost
        elif not self._is_ours(host):
            raise ForeignHost
        if origin is not None and not self._is_own_page(origin, host):
            raise ForeignOrigin

    def is_valid(self, token_id: str) -> bool:
        """Whether a token that let somebody in still would."""
        return True

    def _answers_to(self, host: bytes) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            raise BadHost
        return self._any_host or self._has_name(found[1].decode("ascii").lower())

    def _has_name(self, name: str) -> bool:
        return name in self._allowed or _is_loopback_name(name)

    def _is_own_page(self, origin: bytes, host: bytes | None) -> bool:
        """A page that came from this service, by this or another of its names. A proxy may
        have ended its TLS, so that the scheme says nothing."""
        _, found, authority = origin.partition(b"://")
        if not found:
            return False  # "null": a page without an origin of its own
        if authority == host:
            return True
        name = _HOST.fullmatch(authority)
        return name is not None and name[1].decode("ascii").lower() in self._allowed


# A registered name, an IPv4 address or an IPv6 one in brackets, and a port (RFC 3986, 3.2.2).
_HOST = re.compile(rb"([A-Za-z0-9._~!$&'()*+,;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


def _is_loopback_name(name: str) -> bool:
    """RFC 6761, 6.3: `localhost` and what is below it never leaves the machine."""
    name = name.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches a server on `host`, an address or a name. A name
    that is none is reached by nobody; who listens on it is told."""
    try:
        found = getaddrinfo(host, None, type=SOCK_STREAM)
    except (OSError, UnicodeError):
        return True
    return all(ip_address(str(address[4][0]).partition("%")[0]).is_loopback for address in found)
