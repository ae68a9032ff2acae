"""Servers with `--auth required`: over the wire, in every process, and whose the events are."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from reservation_expiry.api.cli import main
from reservation_expiry.api.gate import ROUTES
from reservation_expiry.domain.tokens import SCOPES
from reservation_expiry.infrastructure.stores.address import Address
from tests.conftest import MakeServer
from tests.support.clients import exchange, request_head
from tests.support.server import Answer, Server, url_of, wait_for

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")


def create_token(address: Address, name: str, scope: str, *words: str) -> str:
    result = CliRunner().invoke(
        main,
        ["token", "create", "--name", name, "--scope", scope, *words],
        env={"RESERVATION_DATABASE": url_of(address)},
    )
    assert result.exit_code == 0, result.output
    return result.output.strip()


def path_of(route: str) -> str:
    return re.sub("<[^>]*>", "seat-1", route)


def ask(server: Server, token: str, method: str, path: str, body: bytes = b"") -> Answer:
    authorization = f"Authorization: Bearer {token}" if token else "X-No: token"
    head = request_head(
        method, path, authorization, f"Content-Length: {len(body)}", "Connection: close"
    )
    answer = exchange(server.port, head + body)
    head, _, content = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), headers, content)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server that asks, and a token of each scope."""
    server = Server(tmp_path_factory.mktemp("auth"), "--auth", "required")
    server.start(wait=False)
    wait_for(server.lives, 20)
    tokens = {scope: create_token(server.database, scope, scope) for scope in SCOPES}
    wait_for(lambda: ask(server, tokens["admin"], "GET", "/whoami").status == 200, 5)
    yield server, tokens
    server.ensure_gone()


@pytest.mark.real_time
@pytest.mark.parametrize("method", METHODS)
def test_auth_lets_nobody_in_anywhere_without_a_token(
    guarded: tuple[Server, dict[str, str]], method: str
) -> None:
    server, _ = guarded
    for path in (*map(path_of, ROUTES), "/", "/none", "/reservations/BAD", "/reservations/%41"):
        answer = ask(server, "", method, path)
        expected = _without_token(method, path)
        assert answer.status == expected, (method, path, answer)
        if expected == 303:
            assert answer.headers["location"] == "/dashboard/login"
        if expected == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer ")
            if method != "HEAD":
                assert answer.json()["code"] == "unauthenticated"


def _without_token(method: str, path: str) -> int:
    """What lets everybody in, or shows them the way in."""
    if path.startswith("/dashboard/static/"):
        return 404 if method == "GET" else 401  # there is no such file
    if path in ("/dashboard/login", "/dashboard/logout") and method == "POST":
        return 403  # no page of the dashboard sent it
    if method == "GET" and path.startswith("/dashboard"):
        return 200 if path == "/dashboard/login" else 303
    return 200 if path == "/healthz" and method in ("GET", "HEAD") else 401


@pytest.mark.real_time
def test_auth_of_a_server_by_scope(guarded: tuple[Server, dict[str, str]]) -> None:
    server, tokens = guarded
    hold, replay = b'{"ttlSeconds":600}', b'{"now":1}'
    path = "/reservations/seat-9"
    for scope, statuses in {
        "read": (403, 200, 403, 403),
        "write": (201, 200, 403, 403),
        "admin": (201, 200, 200, 404),
    }.items():
        asked = (
            ask(server, tokens[scope], "POST", path, hold),
            ask(server, tokens[scope], "GET", path),
            ask(server, tokens[scope], "POST", f"{path}/replay-alarm", replay),
            ask(server, tokens[scope], "POST", "/alarms/redrive", b'{"name":"seat-never"}'),
        )
        assert tuple(a.status for a in asked) == statuses, (scope, asked)
        refused = [a.json()["code"] for a in asked if a.status == 403]
        assert set(refused) <= {"scope-needed"}


@pytest.mark.real_time
def test_auth_says_in_history_who_did_it(guarded: tuple[Server, dict[str, str]]) -> None:
    server, tokens = guarded
    token = tokens["write"]
    ask(server, token, "POST", "/reservations/seat-by", b'{"ttlSeconds":600}')
    put = ask(server, token, "PUT", "/schedules/s/events/tea", b'{"runAt":1999999999999}')
    assert put.status == 201, put
    ask(
        server,
        tokens["admin"],
        "POST",
        "/reservations/seat-by/replay-alarm",
        b'{"now":2999999999999}',
    )
    history = ask(server, token, "GET", "/reservations/seat-by/events").json()["events"]
    assert [(e["event"], e["by"]) for e in history] == [
        ("Held", "write"),
        ("AlarmScheduled", "write"),
        ("Expired", "admin"),
    ]
    events = ask(server, token, "GET", "/events").json()["events"]
    assert {e["by"] for e in events if e.get("objectName") == "s"} == {"write"}


@pytest.mark.real_time
def test_auth_is_over_a_second_after_a_token_is_revoked_in_every_process(
    make_server_on_either: MakeServer,
) -> None:
    servers = [make_server_on_either("--auth", "required") for _ in range(3)]
    for server in servers:
        server.start(wait=False)
        wait_for(server.lives, 20)
    token = create_token(servers[0].database, "ci", "read")
    for server in servers:
        wait_for(lambda server=server: ask(server, token, "GET", "/whoami").status == 200, 2)
    result = CliRunner().invoke(
        main,
        ["token", "revoke", "ci"],
        env={"RESERVATION_DATABASE": url_of(servers[0].database)},
    )
    assert result.exit_code == 0, result.output
    time.sleep(1)  # the promise itself
    assert [ask(server, token, "GET", "/whoami").status for server in servers] == [401, 401, 401]


WORKER = """
from workers import Response, WorkerEntrypoint

class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response(repr(sorted(request.headers.items())))
"""


@pytest.mark.real_time
def test_auth_of_a_worker_stands_before_its_file_which_sees_no_secret(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    server = Server(tmp_path, "--auth", "required", serves=("worker", str(tmp_path / "worker.py")))
    server.start(wait=False)
    try:
        wait_for(server.lives, 20)
        tokens = {scope: create_token(server.database, scope, scope) for scope in SCOPES}
        wait_for(lambda: ask(server, tokens["admin"], "GET", "/").status == 200, 5)
        for method in METHODS:
            for path in ("/", "/readyz", "/anything"):
                assert ask(server, "", method, path).status == 401, (method, path)
        assert ask(server, tokens["read"], "GET", "/readyz").status == 200
        assert ask(server, tokens["read"], "GET", "/anything").status == 403
        answer = ask(server, tokens["write"], "GET", "/anything")
        assert answer.status == 200
        assert b"host" in answer.body
        assert b"authorization" not in answer.body
    finally:
        server.ensure_gone()


@pytest.mark.real_time
def test_auth_makes_a_host_beyond_loopback_a_matter_of_tokens(tmp_path: Path) -> None:
    server = Server(tmp_path, "--host", "0.0.0.0", "--auth", "required").start(wait=False)
    try:
        wait_for(server.lives, 20)
        assert ask(server, "", "GET", "/reservations/seat-1").status == 401
    finally:
        server.ensure_gone()
