"""What an operator does, by the command line on a real server: the original's steps, in order."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import COMMAND, Server, wait_for

pytestmark = pytest.mark.real_time


class Operator:
    """Somebody at a terminal, with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.said: list[str] = []

    def run(self, *words: str, code: int = 0, sent: str = "") -> str:
        """What a command prints; all that it says is kept."""
        done = subprocess.run(
            [*COMMAND, *words],
            input=sent,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.home,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
        )
        self.said.append(done.stdout + done.stderr)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def json(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*words, "--json").splitlines()]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    home = tmp_path / "home"
    home.mkdir()
    return Operator(home)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The database that a namespace is declared beside."""
    return tmp_path / "reservations.db"


@pytest.fixture
def server(tmp_path: Path, base: Path, operator: Operator) -> Iterator[Server]:
    operator.run("namespace", "create", "shop-7", "--database", str(base))
    server = Server(tmp_path, "--auth", "required", "--namespace", "shop-7", database=base)
    start(server)
    yield server
    server.ensure_gone()


def own(server: Server) -> Path:
    """The namespace's own database."""
    return server.database.with_name("reservations.shop-7.db")


def start(server: Server) -> None:
    server.start(wait=False)
    wait_for(server.lives, 20)


def log_in(operator: Operator, server: Server, name: str, scope: str) -> str:
    words = ("token", "create", "--name", name, "--scope", scope, "--expires", "30d")
    token = operator.run(*words, "--database", str(own(server))).strip()

    def logged_in() -> bool:
        try:
            operator.run("login", "--url", server.url, sent=token + "\n")
        except AssertionError:
            return False
        return True

    wait_for(logged_in, 5)
    return token


def test_the_operators_steps_of_the_original(
    operator: Operator, server: Server, base: Path
) -> None:
    database = str(own(server))

    # Log in, who am I
    assert operator.json("whoami") == [{"loggedIn": False}]
    token = log_in(operator, server, "ci", "admin")
    (found,) = operator.json("whoami")
    expires_at_ms = found.pop("expiresAt")
    assert found == {
        "loggedIn": True,
        "authType": "token",
        "name": "ci",
        "scope": "admin",
        "namespace": "shop-7",
        "url": server.url,
    }
    (listed,) = operator.json("token", "list", "--database", database)
    assert expires_at_ms == listed["expiresAt"] == listed["createdAt"] + 30 * 86_400_000

    # Hold
    (held,) = operator.json("hold", "seat-1", "--ttl", "3600", "--url")
    assert held["status"] == "held"

    # Restart
    assert server.stop() == 0
    assert "does not answer" in operator.run("show", "seat-1", "--url", code=3)
    start(server)
    assert operator.json("show", "seat-1", "--url") == [held]

    # Replay: by an explicit clock, twice
    late = str(held["expiresAt"])
    replayed = operator.json("log", "replay", "seat-1", "--now", late, "--database", database)
    assert replayed, "the command's own tests say what"
    (ended,) = operator.json("show", "seat-1", "--url")
    assert (ended["status"], ended["expirationCount"]) == ("expired", 1)

    # Alarms, and who did it
    operator.run("hold", "seat-2", "--ttl", "3600", "--url")
    (alarm,) = operator.json("alarms", "list", "--url")
    assert (alarm["reservationId"], alarm["state"]) == ("seat-2", "waiting")
    history = operator.json("history", "seat-1", "--url")
    assert [(e["event"], e.get("by")) for e in history] == [
        ("Held", "ci"),
        ("AlarmScheduled", "ci"),
        ("Expired", None),  # by the replay on the database itself
    ]
    assert history == operator.json("history", "seat-1", "--database", database)

    # Bindings
    (bindings,) = operator.json("namespace", "show", "shop-7", "--database", str(base))
    assert bindings["status"] == "active"
    assert (bindings["class"], bindings["binding"]) == ("ReservationExpiry", "RESERVATIONS")
    assert (bindings["reservations"], bindings["pending"], len(bindings["servers"])) == (2, 1, 2)

    # Redeployed, with more processes: the state is kept
    assert server.stop() == 0
    words = ("--auth", "required", "--namespace", "shop-7", "--workers", "2")
    redeployed = Server(server.folder, *words, port=server.port, database=base)
    start(redeployed)
    try:
        assert [s["reservationId"] for s in operator.json("list", "--url")] == ["seat-1", "seat-2"]

        # Deleted, and nothing else
        said = operator.run(
            *("namespace", "delete", "shop-7", "--yes", "shop-7", "--database", str(base))
        )
        assert said == "Deleted: shop-7: 2 reservations, 5 events, 1 alarm\n"
        wait_for(lambda: redeployed.get("/events").status == 410, 2)
    finally:
        redeployed.ensure_gone()

    # Log out
    assert "logged out of" in operator.run("logout")
    assert operator.json("whoami") == [{"loggedIn": False}]
    assert "you are not logged in" in operator.run("list", "--url", code=2)

    everything = "".join(operator.said) + server.out.read_text() + server.err.read_text()
    assert everything.count(token) == 1, "once, by `token create`"
    assert token.rpartition("_")[2].encode() not in own(server).read_bytes()


def test_an_operators_token_that_was_written_as_an_argument_is_not_repeated(
    operator: Operator,
) -> None:
    token = "rxt_abcdefgh_" + "a2b3" * 8
    for words in (("login", token), ("login", "--url", token), ("whoami", token)):
        said = operator.run(*words, code=2)
        assert token not in said
        assert "a2b3" not in said, words


def test_an_operators_login_is_theirs_alone(operator: Operator, server: Server) -> None:
    os.umask(0)
    try:
        log_in(operator, server, "ci", "read")
    finally:
        os.umask(0o022)
    kept = operator.home / ".config" / "reservation-expiry" / "login.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    operator.run("logout")
    assert not kept.exists()


def test_an_operator_does_all_that_a_database_offers_on_a_service(
    operator: Operator, server: Server
) -> None:
    log_in(operator, server, "ops", "admin")
    database = ("--database", str(own(server)))
    for name in ("seat-1", "seat-2", "table-1"):
        operator.run("hold", name, "--ttl", "600", "--url", server.url)
    put = ("schedule", "put", "agent", "tea", "--at", "1999999999999", "--payload", "[1]")
    (event,) = operator.json(*put, "--url")
    for words in (
        ("list",),
        ("list", "--prefix", "seat", "--limit", "1"),
        ("show", "seat-1"),
        ("history", "seat-2"),
        ("events",),
        ("events", "--after", "2", "--limit", "2"),
        ("alarms", "list"),
        ("alarms", "list", "--parked"),
        ("schedule", "list", "agent"),
        ("schedule", "show", "agent", "tea"),
    ):
        assert operator.json(*words, "--url") == operator.json(*words, *database), words
        assert operator.run(*words, "--url") == operator.run(*words, *database), words
    assert event["id"] == "tea"
    (now,) = operator.json("show", "seat-1", "--url")
    operator.run("hold", "seat-1", "--ttl", "3600", "--url")
    for then in (("--version", "2"), ("--at", str(now["createdAt"]))):
        (shown,) = operator.json("show", "seat-1", *then, "--url")
        assert [shown] == operator.json("show", "seat-1", *then, *database)
        assert shown == now
    operator.run("show", "seat-1", "--version", "9", "--url", code=5)
    operator.run("show", "seat-1", "--at", "1000000000000", "--url", code=5)
    assert {e["by"] for e in operator.json("events", "--url")} == {"ops"}
    assert operator.run("schedule", "cancel", "agent", "tea", "--url") == "tea is cancelled\n"
    operator.run("schedule", "show", "agent", "tea", "--url", code=5)
    operator.run("schedule", "cancel", "agent", "tea", "--url", code=5)
    operator.run("show", "seat-9", "--url", code=5)
    operator.run("alarms", "redrive", "seat-9", "--url", code=5)
    assert operator.run("alarms", "redrive", "--all", "--url") == "alarms re-driven: 0\n"


def test_an_operator_is_told_what_a_token_may_not(operator: Operator, server: Server) -> None:
    log_in(operator, server, "eyes", "read")
    said = operator.run("hold", "seat-1", "--ttl", "600", "--url", code=3)
    assert "needs a token with the scope write, and this one has read" in said
    said = operator.run("list", "--url", f"http://localhost:{server.port}", code=3)
    assert "You are not logged in to http://localhost" in said, "a token goes to its own service"
    assert "give --url or --database" in operator.run(
        "list", "--url", "--database", str(own(server)), code=2
    )
    operator.run("token", "revoke", "eyes", "--database", str(own(server)))
    wait_for(lambda: not operator.json("whoami")[0]["loggedIn"], 3)


@pytest.mark.parametrize(
    "url", ["localhost", "ftp://h", "http://", "http://u:p@h", "http://h:99999", "http://h/?a=b"]
)
def test_an_operator_hears_what_an_address_of_a_service_is(operator: Operator, url: str) -> None:
    said = operator.run("list", "--url", url, code=2)
    assert "a service's address" in said


def test_an_operator_who_tails_sees_each_event_once(operator: Operator, server: Server) -> None:
    log_in(operator, server, "ops", "write")
    for name in ("seat-1", "seat-2"):
        operator.run("hold", name, "--ttl", "600", "--url")
    tail = subprocess.Popen(
        [*COMMAND, "tail", "--url", "--last", "2", "--json"],
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(operator.home), "PYTHONUNBUFFERED": "1"},
    )
    try:
        seen = [json.loads(tail.stdout.readline())["position"] for _ in range(2)]
        operator.run("hold", "seat-3", "--ttl", "600", "--url")
        seen += [json.loads(tail.stdout.readline())["position"] for _ in range(2)]
    finally:
        tail.terminate()
        tail.wait(10)
        tail.stdout.close()
    assert seen == [3, 4, 5, 6]
