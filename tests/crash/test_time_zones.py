"""Servers in environments whose local time cannot be told: nothing of ours needs it."""

from pathlib import Path

import pytest

from tests.crash.staging import hold_in, now_ms, wait_for_expired
from tests.support.server import Server

pytestmark = pytest.mark.real_time

ENVIRONMENTS = {
    "a zone that is not there": {"TZ": ":bad/zone"},
    "an offset": {"TZ": "UTC0"},
    "rules": {"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"},
    "a name in brackets": {"TZ": "<+03>-3"},
    "no zones at all": {"PYTHONTZPATH": "/nonexistent", "TZ": "Europe/Berlin"},
}
HOLDS = [f"seat-{number}" for number in range(20)]


def test_f72_f78_holds_expire_on_time_whatever_the_time_zone_is_said_to_be(tmp_path: Path) -> None:
    servers = {}
    for number, (kind, env) in enumerate(ENVIRONMENTS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        servers[kind] = Server(folder, env=env)
    try:
        for server in servers.values():
            server.start(wait=False)
        for server in servers.values():
            server.wait_until_ready()
            hold_in(server.database, HOLDS, due_at_ms=now_ms() + 200)
        for kind, server in servers.items():
            wait_for_expired(server.database, len(HOLDS), 5)
            found = server.get("/readyz").json()
            assert found["status"] == "ready", (kind, found)
            assert found["alarms"]["ok"] == len(HOLDS), (kind, found)
            assert max(line["latenessMs"] for line in server.alarm_lines()) < 2_000, kind
            assert "Traceback" not in server.err.read_text(), kind
    finally:
        for server in servers.values():
            server.ensure_gone()
