"""`serve --auth required`: who may do what, on every route there is."""

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from reservation_expiry.api.gate import ROUTES, Gate, ScopeNeeded, Unauthenticated, needs_of_service
from reservation_expiry.api.http import create_app
from reservation_expiry.domain.errors import InvalidToken
from reservation_expiry.domain.tokens import SCOPES, TokenScope
from reservation_expiry.infrastructure.acting import acting
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreUnavailable
from reservation_expiry.infrastructure.settings import Settings
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.row_types import TokenRow
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.token_watch import TokenWatch
from reservation_expiry.infrastructure.tokens import CreateToken, RevokeToken, new_credential
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.server import wait_for

NOTHING = SimpleNamespace(all=None)  # is asked


def make_token(
    application: ReservationApplication, name: str, scope: TokenScope, lives_ms: int | None = None
) -> str:
    credential = new_credential()
    application.writer.execute(CreateToken(credential, name, scope, lives_ms))
    return str(credential)


def flask_routes() -> list[tuple[str, set[str] | None]]:
    on_paper: Any = SimpleNamespace(mapper=None, queries=SimpleNamespace(reader=NOTHING))
    app = create_app(on_paper, schedules=on_paper)
    return [(rule.rule, rule.methods) for rule in app.url_map.iter_rules()]


@pytest.fixture(autouse=True)
def nobody_acts_afterwards() -> Iterator[None]:
    token = acting.set(None)
    yield
    acting.reset(token)


# The table


def test_auth_has_a_need_for_every_route_and_method_that_flask_has() -> None:
    missing = [
        (route, method)
        for route, methods in flask_routes()
        for method in (methods or {"GET"}) - {"HEAD", "OPTIONS"}
        if method not in ROUTES.get(route, {})
        and not (methods is None and route in ROUTES)  # the contract's, which refuse the rest
    ]
    assert missing == []


def test_auth_has_a_need_for_no_route_that_is_gone() -> None:
    assert set(ROUTES) == {route for route, _ in flask_routes()}


def test_auth_needs_what_the_table_says() -> None:
    for route, needs in ROUTES.items():
        for method, need in needs.items():
            assert needs_of_service(method, path_of(route).encode()) == need


def test_auth_asks_for_the_most_where_the_table_is_silent() -> None:
    assert needs_of_service("POST", b"/reservations/seat-1/release-tomorrow") == "admin"
    assert needs_of_service("DELETE", b"/nothing/there") == "admin"
    assert needs_of_service("GET", b"/nothing/there") == "read"


@pytest.mark.parametrize(
    "path",
    [
        b"/reservations/seat-1/replay-alarm",
        b"/reservations/./seat-1/replay-alarm",
        b"/reservations/x/../seat-1/replay-alarm",
        b"/reservations/%2e/seat-1/replay-alarm",
        b"\\reservations\\seat-1\\replay-alarm",
    ],
)
def test_auth_sees_paths_as_routes_see_them(path: bytes) -> None:
    assert needs_of_service("POST", path) == "admin"


# Who may: the gate itself, on either store


@pytest.fixture
def watch(application: ReservationApplication, clock: ManualClock) -> TokenWatch:
    return TokenWatch(application.queries, clock)


def request(method: str, path: str, *authorization: str) -> dict[str, Any]:
    headers = [(b"host", b"localhost"), *((b"authorization", a.encode()) for a in authorization)]
    return {
        "method": method,
        "raw_path": path.encode(),
        "headers": headers,
        "http_version": "1.1",
    }


def path_of(route: str) -> str:
    return re.sub("<[^>]*>", "seat-1", route)


@pytest.mark.parametrize("scope", SCOPES)
def test_auth_gives_each_scope_what_it_may_and_no_more(
    scope: TokenScope, application: ReservationApplication, watch: TokenWatch
) -> None:
    token = make_token(application, "ci", scope)
    watch.read()
    gate = Gate(Settings(), watch, needs_of_service)
    for route, needs in ROUTES.items():
        for method, need in needs.items():
            asked = request(method, path_of(route), f"Bearer {token}")
            if need == "nothing" or SCOPES.index(need) <= SCOPES.index(scope):
                gate.check(asked)
                assert acting.get() == (None if need == "nothing" else "ci")
            else:
                with pytest.raises(ScopeNeeded, match=f"the scope {need}, and this one has"):
                    gate.check(asked)


@pytest.mark.parametrize(
    "authorization",
    [
        (),
        ("",),
        ("Bearer",),
        ("Bearer rxt_aaaaaaaa_" + "a" * 32,),
        ("Basic {token}",),
        ("Bearer {token}x",),
        ("Bearer {token}", "Bearer {token}"),
        ("{token}",),
        ("Bearer {id}" + "a" * 32,),
        ("Bearer ä",),
    ],
)
def test_auth_takes_nothing_but_one_token_that_is_known(
    authorization: tuple[str, ...], application: ReservationApplication, watch: TokenWatch
) -> None:
    token = make_token(application, "ci", "admin")
    watch.read()
    shown = [a.format(token=token, id=token[: len("rxt_12345678_")]) for a in authorization]
    gate = Gate(Settings(), watch, needs_of_service)
    with pytest.raises(Unauthenticated) as refused:
        gate.check(request("GET", "/events", *shown))
    assert refused.value.headers["WWW-Authenticate"].startswith("Bearer realm=")
    assert token not in str(refused.value)
    gate.check(request("GET", "/events", f"bearer  {token}"))


def test_auth_ends_with_the_token(
    application: ReservationApplication, watch: TokenWatch, clock: ManualClock
) -> None:
    token = make_token(application, "ci", "read", lives_ms=1_000)
    for_ever = make_token(application, "ops", "read")
    watch.read()
    clock.advance(999)
    assert watch.find(f"Bearer {token}".encode()) is not None
    clock.advance(1)
    assert watch.find(f"Bearer {token}".encode()) is None
    assert watch.find(f"Bearer {for_ever}".encode()) is not None
    assert application.writer.execute(RevokeToken("ops")).name == "ops"
    assert watch.find(f"Bearer {for_ever}".encode()) is not None, "until it reads again"
    watch.read()
    assert watch.find(f"Bearer {for_ever}".encode()) is None
    assert application.writer.execute(RevokeToken("ops")) is None


def test_auth_reads_the_other_tokens_if_one_is_damaged(
    application: ReservationApplication, watch: TokenWatch, address: Address
) -> None:
    damaged, good = make_token(application, "a", "admin"), make_token(application, "b", "read")
    watch.read()
    assert watch.find(f"Bearer {damaged}".encode()) is not None
    sql(address, "UPDATE tokens SET scope = 'root' WHERE name = 'a'")
    watch.read()
    assert watch.find(f"Bearer {damaged}".encode()) is None
    assert watch.find(f"Bearer {good}".encode()) is not None


def test_auth_goes_on_with_what_it_knew_while_the_database_does_not_answer(
    application: ReservationApplication, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    token = make_token(application, "ci", "read", lives_ms=10_000)
    queries = QueriesThatMayFail(application.queries.tokens())
    watch = TokenWatch(queries, clock)
    watch.start()
    try:
        queries.fails = True
        wait_for(lambda: queries.failures > 2, 5)
        assert watch.find(f"Bearer {token}".encode()) is not None
        clock.advance(10_000)
        assert watch.find(f"Bearer {token}".encode()) is None
    finally:
        watch.stop()
    told = [r for r in caplog.records if "tokens are as they were" in r.message]
    assert len(told) == 1, "once, until it answers again"


class QueriesThatMayFail(Queries):
    """Of a database that can be away."""

    def __init__(self, rows: list[TokenRow]) -> None:
        self.rows, self.fails, self.failures = rows, False, 0

    def tokens(self) -> list[TokenRow]:
        if self.fails:
            self.failures += 1
            raise StoreUnavailable("it is away")
        return self.rows


def test_auth_knows_two_valid_tokens_apart_by_their_names(
    application: ReservationApplication,
) -> None:
    make_token(application, "ci", "read")
    with pytest.raises(InvalidToken, match="there is a valid token ci already"):
        make_token(application, "ci", "write")
    application.writer.execute(RevokeToken("ci"))
    make_token(application, "ci", "write")
    with pytest.raises(InvalidToken, match="1 to 40 lowercase letters"):
        make_token(application, 'c"i', "write")


def test_auth_keeps_no_secret(application: ReservationApplication) -> None:
    token = make_token(application, "ci", "read")
    (row,) = application.queries.tokens()
    secret = token.rpartition("_")[2]
    assert len(secret) * 5 == 160
    assert secret not in repr(row)
