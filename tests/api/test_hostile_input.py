"""F44, F70, F77: whatever stands on the command line or in a file, a command ends with one of
its exit codes and a sentence, never with a traceback."""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from reservation_expiry.api import server as server_module
from reservation_expiry.api.cli import main
from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.checksum import GENESIS, chain
from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore
from tests.support.loops import schedules_of
from tests.support.server import free_port

ROOT = Path(__file__).parents[2]
EXIT_CODES = {0, 1, 2, 3, 4, 5, 130}
DEEP = "[" * 5_000 + "]" * 5_000
HOSTILE = [
    "",
    " ",
    "-",
    "--",
    ".",
    "/",
    "..",
    "{device}",
    "/proc/self/mem",
    "/proc/self/fd/99",
    "a\0b",
    "a\nb",
    "\x1b[31m",
    "\udcff",
    "\ud800\udfff",
    "\u202e\U0001f39f\u0301",
    "\U0010ffff",
    "%s%n{0}{}$x",
    "'\"`;--",
    "x" * 256,
    "\u00f6" * 300,
    "y" * 100_000,
    "0",
    "-1",
    "00000000000000000000000000000001",
    "99999999999999999999",
    "-99999999999999999999",
    "9223372036854775807",
    "9223372036854775808",
    "9" * 5_000,
    "1e999",
    "0x10",
    "NaN",
    "Infinity",
    "1_0",
    "\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669",
    "\u00b2" * 9,
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999-23:59",
    "99:99",
    "23:59:60",
    "null",
    "{",
    '"\\ud800"',
    '{"a":' * 2_000 + "1" + "}" * 2_000,
    DEEP,
    "postgresql://u:s3cret@127.0.0.1:1/d",
    "host=h password=s3cret",
    "file:x.db",
    ":memory:",
    "postgresql://[::1/d",
    "a/b",
    "a/b/c",
    "Counter/\x7f",
]
# Each command with values that it takes, the options that hostile values go into by name.
BASE: dict[str, dict[str, str]] = {
    "alarms list": {"--limit": "5"},
    "alarms list ": {"--url": "http://127.0.0.1:1"},
    "alarms attempts": {"--outcome": "ok", "--name": "seat-1", "--limit": "5"},
    "alarms attempts ": {"--name": "seat-1", "--url": "http://127.0.0.1:1"},
    "alarms redrive": {"name": "seat-1"},
    "alarms redrive ": {"name": "seat-1", "--url": "http://127.0.0.1:1"},
    "backup": {"file": "{new}.db"},
    "completion": {"shell": "bash"},
    "copy": {"--from": "{database}", "--to": "{new}.db"},
    "events": {"--after": "1", "--limit": "5"},
    "history": {"name": "seat-1"},
    "hold": {"name": "seat-1", "--ttl": "60"},
    "list": {"--status": "held", "--prefix": "s", "--due-before": "12:00", "--limit": "5"},
    "events ": {"--url": "http://127.0.0.1:1"},
    "history ": {"name": "seat-1", "--url": "http://127.0.0.1:1"},
    "hold ": {"name": "seat-1", "--ttl": "60", "--url": "http://127.0.0.1:1"},
    "list ": {"--url": "http://127.0.0.1:1"},
    "login": {"--url": "http://127.0.0.1:1"},
    "log diff": {"--from": "1800000000000", "--to": "1900000000000"},
    "log digest": {},
    "log export": {"file": "{new}.jsonl"},
    "log import": {"file": "{new}.jsonl", "--database": "{new}.db"},
    "log rebuild": {},
    "log replay": {"name": "seat-1", "--now": "1800000060000", "--times": "2"},
    "log verify": {},
    "restore": {"file": "{database}", "--database": "{new}.db"},
    "schedule cancel": {"name": "agent", "id": "tea"},
    "schedule cancel ": {"name": "agent", "id": "tea", "--url": "http://127.0.0.1:1"},
    "schedule list ": {"name": "agent", "--url": "http://127.0.0.1:1"},
    "schedule put  ": {"name": "agent", "id": "t", "--url": "http://127.0.0.1:1"},
    "schedule redrive ": {"name": "agent", "id": "tea", "--url": "http://127.0.0.1:1"},
    "schedule show ": {"name": "agent", "id": "tea", "--url": "http://127.0.0.1:1"},
    "schedule list": {"name": "agent", "--limit": "5", "--after": "a"},
    "schedule put": {
        "name": "agent",
        "id": "tea",
        "--at": "1900000000000",
        "--every": "60000",
        "--payload": "{{}}",
    },
    "schedule put ": {"name": "agent", "id": "t", "--cron": "0 9 * * *", "--zone": "UTC"},
    "schedule redrive": {"name": "agent", "id": "tea"},
    "schedule show": {"name": "agent", "id": "tea"},
    "serve": {"--host": "127.0.0.1", "--port": "{port}", "--workers": "1", "--log-level": "info"},
    "serve  ": {"--auth": "required", "--log-format": "json", "--port": "{port}"},
    "serve ": {"--allow-host": "tickets.example", "--port": "{port}"},
    "holds cancel": {"name": "cart-1", "--token-file": "{worker}", "--url": "http://127.0.0.1:1"},
    "holds confirm": {"name": "cart-1", "--token-file": "{worker}", "--url": "http://127.0.0.1:1"},
    "holds extend": {"name": "cart-1", "--ttl": "60", "--token-file": "{worker}"},
    "holds extend ": {"name": "cart-1", "--at": "1900000000000", "--url": "http://127.0.0.1:1"},
    "holds list": {"--status": "held", "--owner": "a", "--item": "b", "--prefix": "c"},
    "holds list ": {"--limit": "5", "--url": "http://127.0.0.1:1"},
    "holds put": {"name": "cart-1", "--ttl": "60", "--line": "seat=1", "--owner": "a"},
    "holds put ": {"name": "cart-1", "--token-file": "{worker}", "--url": "http://127.0.0.1:1"},
    "holds release": {"name": "cart-1", "--token-file": "{worker}", "--url": "http://127.0.0.1:1"},
    "holds show": {"name": "cart-1", "--url": "http://127.0.0.1:1"},
    "items list": {"--limit": "5", "--after": "a", "--url": "http://127.0.0.1:1"},
    "items set": {"name": "floor", "capacity": "5", "--url": "http://127.0.0.1:1"},
    "items show": {"name": "floor", "--url": "http://127.0.0.1:1"},
    "serve     ": {"--longest-hold": "60", "--kept-attempts": "1000", "--port": "{port}"},
    "list   ": {"--namespace": "blue"},
    "serve    ": {"--namespace": "blue"},
    "namespace create": {"name": "blue"},
    "namespace delete": {"name": "blue", "--yes": "blue"},
    "namespace list": {},
    "namespace show": {"name": "blue"},
    "serve   ": {"--objects": "{worker}", "--config": "{new}.toml", "--service-prefix": "/own"},
    "show": {"name": "seat-1", "--at": "12:00"},
    "show  ": {"name": "seat-1", "--url": "http://127.0.0.1:1"},
    "tail": {"--last": "5", "--url": "http://127.0.0.1:1"},
    "token create": {"--name": "ci", "--scope": "read", "--expires": "30d"},
    "token revoke": {"name": "ci"},
    "show ": {"name": "seat-1", "--version": "1"},
    "worker": {"file": "{worker}", "--config": "{new}.toml", "--host": "h", "--port": "1"},
    "worker ": {"file": "{worker}", "--workers": "1", "--log-level": "info"},
    "worker    ": {"file": "{worker}", "--kept-attempts": "2000"},
    "worker   ": {"file": "{worker}", "--auth": "required", "--log-format": "text"},
    "worker  ": {"file": "{worker}", "--allow-host": "tickets.example"},
}


def commands(group: click.Group = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from commands(command, f"{path}{name} ")
            else:
                yield path + name, command


def test_every_command_and_every_parameter_is_tried() -> None:
    tried = {path: {"--database", "--namespace"} for path, _ in commands()}
    for path, values in BASE.items():
        tried[path.strip()] |= values.keys()
    flags = {"--json", "--force", "--all", "--parked", "--due", "--follow", "--check", "--help"}
    flags |= {"--insecure", "--shorten"}
    for path, command in commands():
        names = {
            name
            for parameter in command.params
            for name in (
                parameter.opts if isinstance(parameter, click.Option) else [parameter.name]
            )
        }
        assert names - flags - {"--replay-route"} <= tried[path], path


@pytest.fixture
def run(
    application: ReservationApplication,
    database_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[list[str]], Result]:
    """Runs a command line where nothing of value is; nothing is served."""
    application.hold("seat-1", 60)
    application.stop()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(server_module, "serve", lambda *_: None)
    monkeypatch.setattr("reservation_expiry.api.processes.MAX_DEATHS", 0)
    # A server's database that is not there is waited for, for ever.
    monkeypatch.setattr(PostgresStore, "wait_until_there", lambda store: store.connect())
    environment = {"RESERVATION_DATABASE": str(database_path)}

    def run(words: list[str]) -> Result:
        return CliRunner().invoke(main, words, env=environment, input="")

    return run


def assert_ended_well(result: Result, words: list[str]) -> None:
    shown = [word[:80] for word in words]
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        shown,
        result.exc_info,
    )
    assert result.exit_code in EXIT_CODES, shown
    assert "Traceback" not in result.output, shown
    assert "s3cret" not in result.stderr, shown
    if result.exit_code not in (0, 1):
        said = [
            line for line in result.stderr.splitlines() if re.match(r"Error: |reservation-", line)
        ]
        assert len(said) == 1, (shown, result.stderr)


@pytest.mark.parametrize("path", BASE)
def test_f44_f77_hostile_values_end_in_a_sentence(
    path: str, run: Callable[[list[str]], Result], database_path: Path, tmp_path: Path
) -> None:
    parameters, port = BASE[path], free_port()
    if "--url" not in parameters:
        parameters = {"--database": "{database}", **parameters}
    device = tmp_path / "device"  # one of our own, which may well be lost if this fails
    with suppress(PermissionError):
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    for hostile_in in parameters:
        for number, hostile in enumerate(HOSTILE):
            new, worker = tmp_path / f"new-{number}", ROOT / "docs" / "examples" / "agent.py"
            places = {"database": database_path, "new": new, "worker": worker, "port": port}
            values = {name: value.format(**places) for name, value in parameters.items()}
            values[hostile_in] = hostile.replace("{device}", str(device))
            options = [f"{name}={value}" for name, value in values.items() if name[0] == "-"]
            arguments = [value for name, value in values.items() if name[0] != "-"]
            check = ["--check"] if path == "serve" else []
            words = [*path.split(), *check, *options, "--", *arguments]
            assert_ended_well(run(words), words)
    assert not [name for name in os.listdir(tmp_path) if re.search("s3cret|file:|:memory:", name)]


@pytest.mark.parametrize("name", ["host", "port", "database", "workers", "log-level"])
def test_f44_f77_hostile_variables_end_in_a_sentence(
    name: str, run: Callable[[list[str]], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"RESERVATION_{name.upper().replace('-', '_')}"
    for hostile in HOSTILE:
        if "\0" in hostile:
            continue  # there can be no such variable
        if hostile.startswith("\ud800"):
            continue
        environment = {"RESERVATION_PORT": str(free_port()), variable: hostile}
        result = CliRunner().invoke(main, ["serve", "--check"], env=environment)
        assert_ended_well(result, [variable, hostile])


# F70: what is in a file


def line(**changes: Any) -> dict[str, Any]:
    """The first event of an exported log, with changes and the checksum of what it is then."""
    found = {
        "position": 1,
        "id": "reservation/seat-1",
        "version": 1,
        "topic": "reservation.Held",
        "recordedAt": 1,
        "state": '{"created_at_ms":1,"expires_at_ms":5001}',
        **changes,
    }
    facts = [found[key] for key in ("position", "id", "version", "topic", "recordedAt")]
    with suppress(AttributeError, UnicodeEncodeError):
        found["checksum"] = chain(GENESIS, *facts, found["state"].encode()).hex()
    return {"checksum": "00" * 16, **found, **changes}


HEADER = {"format": "reservation-expiry-log", "version": 1, "events": 1, "digest": "00" * 16}
STORAGE = {"id": "object/A/b", "topic": "object.StorageWritten"}
FILES: dict[str, bytes] = {
    f"{key} {value!r:.40}": json.dumps(line(**{key: value})).encode()
    for key in line()
    for value in (
        2**63,
        -(2**63) - 1,
        10**30,
        1.5,
        1e400,
        None,
        [],
        "\ud800",
        "x" * 70_000,
        "",
        True,
    )
}
FILES |= {
    "a value 5,000 deep": json.dumps(line(**STORAGE, state=f'{{"puts":{{"a":{DEEP}}}}}')).encode(),
    "a state 5,000 deep": json.dumps(line(state=DEEP)).encode(),
    "a line 5,000 deep": DEEP.encode(),
    "an id 5,000 deep": json.dumps(line()).replace('"reservation/seat-1"', DEEP).encode(),
    "no UTF-8": b"\xff\xfe",
    "NUL": b"\0" * 100,
    "a field too many": json.dumps(line(more=1)).encode(),
    "an integer of 5,000 digits": json.dumps(line()).replace(": 1,", f": {'9' * 5000},").encode(),
}


@pytest.mark.parametrize("kind", FILES)
def test_f70_a_log_with_hostile_rows_is_refused_and_nothing_made(
    kind: str, run: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_bytes(json.dumps(HEADER).encode() + b"\n" + FILES[kind] + b"\n")
    words = ["log", "import", "log.jsonl", "--database", "new.db"]
    result = run(words)
    assert_ended_well(result, words)
    assert result.exit_code == 3
    assert "line 2" in result.stderr
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("value", [2**63, -1, 1.5, None, "x", [], 10**400])
@pytest.mark.parametrize("key", HEADER)
def test_f70_a_log_with_a_hostile_header_is_refused(
    key: str, value: Any, run: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    header = json.dumps({**HEADER, key: value})
    (tmp_path / "log.jsonl").write_text(header + "\n")
    words = ["log", "import", "log.jsonl", "--database", "new.db"]
    result = run(words)
    assert_ended_well(result, words)
    assert result.exit_code == 3


# F44: over HTTP


def test_f44_a_payload_nested_too_deep_is_refused(
    application: ReservationApplication, database_path: Path
) -> None:
    statuses = {}
    with schedules_of(application) as schedules:
        client = create_app(application, schedules=schedules).test_client()
        for depth in (98, 99, 100, 101, 1_000, 2_000, 100_000):
            payload = b"[" * depth + b"]" * depth
            path = f"/schedules/agent/events/e{depth}"
            answer = client.put(path, data=b'{"runAt":1900000000000,"payload":%b}' % payload)
            statuses[depth] = (answer.status_code, client.get(path).status_code)
            if answer.status_code != 201:
                assert answer.content_type == "application/problem+json"
    assert statuses.pop(98) == statuses.pop(99) == (201, 200)
    assert set(statuses.values()) == {(400, 404)}
    assert client.get("/events").status_code == 200


@pytest.mark.parametrize("name", ["x" * 256, "x" * 3_000, "\u00f6" * 2_000])
def test_f44_an_event_of_an_impossible_id_is_not_there(
    name: str, application: ReservationApplication, database_path: Path
) -> None:
    with schedules_of(application) as schedules:
        client = create_app(application, schedules=schedules).test_client()
        path = f"/schedules/agent/events/{name}"
        assert client.get(path).status_code == 404
        assert client.delete(path).status_code == 404
        assert client.post(f"{path}/redrive").status_code == 404
