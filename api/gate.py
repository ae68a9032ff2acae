"""The gate: with `--auth required`, nothing is answered without a token that may have it.

What each route needs is one table, asked by the path as routes see it. A test holds the
table against the routes there are; what stands in neither needs the most.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from werkzeug.http import parse_cookie

from reservation_expiry.api.access import Access
from reservation_expiry.api.dashboard.sessions import COOKIE, Sessions
from reservation_expiry.api.paths import route_of
from reservation_expiry.api.requests import RequestRefused, Scope
from reservation_expiry.domain.ids import NAME_PATTERN
from reservation_expiry.domain.tokens import SCOPES, TokenScope, allows
from reservation_expiry.infrastructure.acting import acting
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.settings import Settings
from reservation_expiry.infrastructure.token_watch import TokenWatch
from reservation_expiry.infrastructure.tokens import Token

Need = TokenScope | Literal["nothing"]
Needs = Callable[[str, bytes], Need]
"""What a request needs, by its method and its path as it stood in the request."""

# By route and method, as Flask has them. Routes of the contract take any method, and refuse
# all but these.
ROUTES: Mapping[str, Mapping[str, Need]] = {
    "/": {"GET": "read"},
    "/healthz": {"GET": "nothing", "HEAD": "nothing"},
    "/readyz": {"GET": "read"},
    "/metrics": {"GET": "read"},
    "/whoami": {"GET": "read"},
    "/events": {"GET": "read"},
    "/reservations": {"GET": "read"},
    "/reservations/<name:name>": {"GET": "read", "POST": "write"},
    "/reservations/<name:name>/events": {"GET": "read"},
    "/reservations/<name:name>/replay-alarm": {"POST": "admin"},
    "/openapi.json": {"GET": "read"},
    "/holds": {"GET": "read", "POST": "write"},
    "/holds/<name>": {"GET": "read", "PUT": "write"},
    "/holds/<name>/extend": {"POST": "write"},
    "/holds/<name>/confirm": {"POST": "write"},
    "/holds/<name>/release": {"POST": "write"},
    "/holds/<name>/cancel": {"POST": "write"},
    "/items": {"GET": "read"},
    "/items/<name>": {"GET": "read", "PUT": "write"},
    "/alarms": {"GET": "read"},
    "/alarms/attempts": {"GET": "read"},
    "/alarms/redrive": {"POST": "admin"},
    "/alarms/<path:name>/redrive": {"POST": "admin"},
    "/dashboard": {"GET": "read"},
    "/dashboard/": {"GET": "read"},
    "/dashboard/login": {"GET": "nothing", "POST": "nothing"},
    "/dashboard/logout": {"POST": "nothing"},
    "/dashboard/static/<path:filename>": {"GET": "nothing"},
    "/dashboard/reservations": {"GET": "read"},
    "/dashboard/reservations/<name>": {"GET": "read"},
    "/dashboard/objects": {"GET": "read"},
    "/dashboard/objects/<class_name>/<path:name>": {"GET": "read"},
    "/dashboard/log": {"GET": "read"},
    "/dashboard/alarms": {"GET": "read"},
    "/dashboard/alarms/redrive": {"POST": "admin"},
    "/dashboard/attempts": {"GET": "read"},
    "/dashboard/schedules": {"GET": "read"},
    "/dashboard/schedules/<name>": {"GET": "read"},
    "/dashboard/schedules/<name>/redrive": {"POST": "admin"},
    "/dashboard/live": {"GET": "read"},
    "/dashboard/<path:rest>": {"GET": "read"},
    "/schedules/<name>": {"GET": "read"},
    "/schedules/<name>/events/<id>": {"GET": "read", "PUT": "write", "DELETE": "write"},
    "/schedules/<name>/events/<id>/redrive": {"POST": "admin"},
}
_OPEN = frozenset((b"/healthz", b"/dashboard/login"))
_ASSETS = b"/dashboard/static/"
_HOT = re.compile(f"/reservations/{NAME_PATTERN}".encode())
_HOT_NEEDS = ROUTES["/reservations/<name:name>"]
_ENOUGH = {(scope, needed) for scope in SCOPES for needed in SCOPES if allows(scope, needed)}


class Unauthenticated(RequestRefused):
    """No token, or none that is known and valid."""

    code = "unauthenticated"

    def __init__(self, *, is_shown: bool) -> None:
        what = "the token is not known, or not valid any more" if is_shown else "no token was sent"
        super().__init__(f"{what}: send Authorization: Bearer rxt_... (token create makes one)")
        error = ', error="invalid_token"' if is_shown else ""
        self.headers = {"WWW-Authenticate": f'Bearer realm="reservation-expiry"{error}'}


class ScopeNeeded(RequestRefused):
    """The token is good, and not for this."""

    code = "scope-needed"

    def __init__(self, needed: TokenScope, scope: TokenScope) -> None:
        super().__init__(f"this needs a token with the scope {needed}, and this one has {scope}")
        self.headers = {
            "WWW-Authenticate": 'Bearer realm="reservation-expiry", error="insufficient_scope", '
            f'scope="{needed}"'
        }


class SignInNeeded(RequestRefused):
    """A page of the dashboard, and nobody has signed in: `location` is where to."""

    code = "sign-in-needed"

    def __init__(self, location: str) -> None:
        super().__init__("sign in with a token first")
        self.headers = {"Location": location}


class Gate(Access):
    """As Access, and with it a token that may have what is asked for.

    `root` is the path below which the service's own routes are, None if it has none. Its
    dashboard, and the stream of events that this shows, may be asked for with the cookie of
    somebody who has signed in.
    """

    def __init__(
        self, settings: Settings, watch: TokenWatch, needs: Needs, root: str | None = ""
    ) -> None:
        super().__init__(settings.allow_hosts, any_host=self.reaches_others(settings))
        self._watch = watch
        self._needs = needs
        self._root = None if root is None else root.encode()
        self.sessions = Sessions(watch)

    def check(self, scope: Scope) -> None:
        """Raises Unauthenticated or ScopeNeeded, besides. Leaves the token in the scope, and
        its name with what is done."""
        super().check(scope)
        needed = self._needs(scope["method"], scope["raw_path"])
        if needed == "nothing":
            _act_as(None)
            return
        shown = _header(scope, b"authorization")
        token = self._signed_in(scope) if shown is None else self._watch.find(shown)
        if token is None:
            self._refuse_page(scope, is_shown=shown is not None)
            raise Unauthenticated(is_shown=shown is not None)
        if (token.scope, needed) not in _ENOUGH:
            raise ScopeNeeded(needed, token.scope)
        scope["token"] = token
        _act_as(token.name)

    def is_valid(self, token_id: str) -> bool:
        return self._watch.find_by_id(token_id) is not None

    def _signed_in(self, scope: Scope) -> Token | None:
        """Whose browser it is. Other pages cannot send its cookie (SameSite), nor their own
        requests (`Access`)."""
        if self._root is None or self.sessions is None:
            return None
        path: bytes = scope["raw_path"].removeprefix(self._root)
        if path != b"/events" and not _is_page(path):
            return None
        cookie = parse_cookie((_header(scope, b"cookie") or b"").decode("latin-1")).get(COOKIE)
        return None if cookie is None else self.sessions.token_of(cookie)

    def _refuse_page(self, scope: Scope, *, is_shown: bool) -> None:
        """Raises SignInNeeded where a browser can be shown the way."""
        root = self._root
        if root is None or is_shown or scope["method"] != "GET":
            return
        if scope["raw_path"].startswith(root) and _is_page(scope["raw_path"].removeprefix(root)):
            raise SignInNeeded(f"{root.decode()}/dashboard/login")


def _is_page(path: bytes) -> bool:
    return path == b"/dashboard" or path.startswith(b"/dashboard/")


def _act_as(name: str | None) -> None:
    """A connection's requests may follow each other in one context, and mostly have one name."""
    if acting.get() != name:
        acting.set(name)


@contextmanager
def access_of(
    settings: Settings,
    application: ReservationApplication,
    needs: Needs,
    root: str | None = "",
) -> Iterator[Access]:
    """Who may ask a process, by its settings; the application runs. `root` as in `Gate`."""
    if settings.auth != "required":
        yield Access.of(settings)
        return
    watch = TokenWatch(application.queries, application.clock)
    watch.start()
    try:
        yield Gate(settings, watch, needs, root)
    finally:
        watch.stop()


def needs_of_service(method: str, raw_path: bytes) -> Need:
    if method == "GET":  # none of which does anything
        return "nothing" if raw_path in _OPEN or raw_path.startswith(_ASSETS) else "read"
    if _HOT.fullmatch(raw_path):
        return _HOT_NEEDS.get(method, "read")  # to be told that there is no such method
    route = route_pattern(raw_path)
    if route is not None and method in ROUTES[route]:
        return ROUTES[route][method]
    return "read" if method in ("HEAD", "OPTIONS") else "admin"


def route_pattern(raw_path: bytes) -> str | None:
    """As it stands in ROUTES; None if it is none of ours."""
    path = route_of(raw_path)
    return next((route for pattern, route in _PATTERNS if pattern.fullmatch(path)), None)


def needs_of_worker(method: str, raw_path: bytes, *, answers_health: bool) -> Need:
    """What the methods of a file's front door do is the file's to say: a GET may write."""
    if method == "GET" and not answers_health:
        if raw_path == b"/healthz":
            return "nothing"
        if raw_path == b"/readyz":
            return "read"
    return "write"


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    """What a header says; nothing that is of use if there are several."""
    found = None
    for name, value in scope["headers"]:
        if name == wanted:
            found = value if found is None else b""
    return found


def _pattern_of(route: str) -> "re.Pattern[str]":
    """As Flask would match it: a name, any one segment, or several."""
    parts: list[Any] = re.split("(<[^>]*>)", route)
    named = {"<name:name>": NAME_PATTERN, "<path:name>": ".+"}
    return re.compile(
        "".join(named.get(p, "[^/]+") if p.startswith("<") else re.escape(p) for p in parts)
    )


_PATTERNS = [(_pattern_of(route), route) for route in ROUTES]
