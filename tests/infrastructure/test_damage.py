"""F74: a damaged file is told to be one by every command, never with a traceback, and `log
verify` reports as much of it as can be read."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reservation_expiry.api.cli import main
from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.sqlite.schema import MIGRATIONS
from tests.support.logs import verified
from tests.support.loops import schedules_of
from tests.support.server import free_port

PAGE = 4096
HOLDS = 400
COMMANDS = [
    "log verify --json",
    "log verify",
    "log digest",
    "log diff --from 100000000000 --to 9999999999999",
    "log export {copy}",
    "events --json",
    "events",
    "history seat-7",
    "history EventSchedule/agent",
    "list --limit 1000",
    "show seat-7",
    "show seat-7 --at 23:59",
    "alarms list --limit 1000",
    "schedule list agent",
    "schedule show agent e3",
    "serve --check --port {port}",
    "backup {copy}",
    "copy --from {damaged} --to {copy}",
    "hold seat-3 --ttl 60",
    "log replay seat-5 --now 9000000000000",
    "alarms redrive --all",
    "log rebuild",
]


def made(path: Path, holds: int) -> Path:
    """A database of so many reservations, some moved, some expired, and of a schedule."""
    prepare(path)
    application = ReservationApplication(path)
    application.start(alarms=False)
    for number in range(holds):
        application.hold(f"seat-{number}", 600)
    for number in range(holds // 4):
        application.hold(f"seat-{number}", 900)
        application.expire(f"seat-{number + holds // 2}", 2**52)
    with schedules_of(application) as schedules:
        for number in range(holds // 12 + 1):
            event = (f"e{number}", 1_900_000_000_000, 60_000, {"x": "y" * 100}, None, "UTC")
            schedules.ask("agent", "scheduleEvent", *event)
    application.stop()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("whole") / "whole.db", HOLDS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("small") / "small.db", 9)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return tmp_path / "damaged.db"


def run(damaged: Path, words: str, data: bytes) -> Result:
    """One command on a file of its own, in a folder of its own."""
    for path in damaged.parent.iterdir():
        path.unlink()
    damaged.touch(0o600)
    damaged.write_bytes(data)
    places = {"damaged": damaged, "copy": damaged.with_name("copy.db"), "port": free_port()}
    environment = {"RESERVATION_DATABASE": str(damaged)}
    return CliRunner().invoke(main, words.format(**places).split(), env=environment)


def assert_all_end_well(
    damaged: Path, data: bytes, commands: list[str] = COMMANDS
) -> dict[str, Result]:
    results = {}
    for words in commands:
        result = results[words] = run(damaged, words, data)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            words,
            result.exc_info,
        )
        assert result.exit_code in (0, 1, 3, 5), (words, result.output)
        if result.exit_code == 3:
            assert len(result.stderr.splitlines()) == 1, (words, result.stderr)
    return results


def zeroed(data: bytes, page: int) -> bytes:
    return data[: page * PAGE] + bytes(PAGE) + data[(page + 1) * PAGE :]


def flipped(data: bytes, page: int, bits: int, dice: random.Random) -> bytes:
    copy = bytearray(data)
    for _ in range(bits):
        copy[page * PAGE + dice.randrange(PAGE)] ^= 1 << dice.randrange(8)
    return bytes(copy)


@pytest.mark.parametrize("seed", range(12))
def test_f74_a_damaged_page_is_told_by_every_command(seed: int, whole: Path, damaged: Path) -> None:
    """160 such copies, and 300 more, were tried; these are kept."""
    dice, data = random.Random(seed), whole.read_bytes()
    page = dice.randrange(1, len(data) // PAGE)
    if seed % 2:
        data = flipped(data, page, dice.choice([1, 5, 40, 400]), dice)
    else:
        data = zeroed(data, page)
    results = assert_all_end_well(damaged, data)
    # A whole copy and a verified file are the same thing.
    verify, backup = results["log verify"], results["backup {copy}"]
    assert (verify.exit_code == 0) == (backup.exit_code == 0), (verify.output, backup.output)


# Each column with each value that it may not have


def columns() -> list[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for step in MIGRATIONS:
            connection.executescript(step)
        return [
            (table, name)
            for table in ("events", "log_head", "alarms", "reservations", "objects", "snapshots")
            for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")
        ]


VALUES = ("NULL", "-1.5", "9e999", "'text'", "x'ff00'", "CAST(x'ff' AS TEXT)", "''")
# One command for each way in which rows are read. (All were tried on all values.)
READING = [
    "log verify",
    "log diff --from 100000000000 --to 9999999999999",
    "log export {copy}",
    "events",
    "list",
    "show seat-8 --at 23:59",
    "alarms list",
    "serve --check --port {port}",
    "hold seat-8 --ttl 60",
    "log rebuild",
]


@pytest.mark.parametrize(("table", "column"), columns())
def test_f74_a_value_of_another_type_is_told_by_every_command(
    table: str, column: str, small: Path, damaged: Path
) -> None:
    """In a table without its constraints, as a damaged page has none."""
    values = ("-5", "99999") if column == "position" and table == "events" else VALUES
    for value in values:
        damaged.write_bytes(small.read_bytes())
        with closing(sqlite3.connect(damaged, isolation_level=None)) as connection:
            if values is VALUES:
                _without_constraints(connection, table)
            last = f"(SELECT max(rowid) FROM {table})"
            connection.execute(f"UPDATE {table} SET {column} = {value} WHERE rowid = {last}")
            connection.execute("PRAGMA journal_mode = DELETE")
        assert_all_end_well(damaged, damaged.read_bytes(), READING)


def _without_constraints(connection: sqlite3.Connection, table: str) -> None:
    connection.execute(f"CREATE TABLE other AS SELECT * FROM {table}")
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"ALTER TABLE other RENAME TO {table}")


def test_f74_a_log_without_its_head_is_told_by_every_command(whole: Path, damaged: Path) -> None:
    damaged.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(damaged)) as connection, connection:
        connection.execute("DELETE FROM log_head")
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    results = assert_all_end_well(damaged, damaged.read_bytes())
    assert results["log verify"].exit_code == 1
    assert "has lost its head" in results["log verify"].output
    assert json.loads(results["log verify --json"].stdout)["events"] > 1_000, "all that is there"


# What verifying still reports


def pages_of(path: Path, table: str) -> list[int]:
    """The leaf pages of a table or an index, found by marking what is in it."""
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
    data = path.read_bytes()
    offset = (root - 1) * PAGE
    cells = int.from_bytes(data[offset + 3 : offset + 5], "big")
    pointers = [
        int.from_bytes(data[at : at + 2], "big")
        for at in range(offset + 12, offset + 12 + 2 * cells, 2)
    ]
    return [int.from_bytes(data[offset + p : offset + p + 4], "big") - 1 for p in pointers]


def damaged_at(whole: Path, damaged: Path, page: int) -> Path:
    damaged.write_bytes(zeroed(whole.read_bytes(), page))
    return damaged


def test_f74_verify_goes_on_behind_a_page_of_the_log_that_cannot_be_read(
    whole: Path, damaged: Path
) -> None:
    all_events = verified(whole).events
    page = pages_of(whole, "events")[5]
    report = verified(damaged_at(whole, damaged, page))
    gaps = [d.problem for d in report.differences if d.problem.startswith("position ")]
    assert len(gaps) == 1, "one piece, from where to where"
    first, last = (int(word) for word in gaps[0].split(":")[0].split()[1::2])
    assert report.events == all_events - (last - first + 1)
    assert 5 < last - first < 60
    names = [d for d in report.differences if "cannot be compared with its history" in d.problem]
    assert 3 < len(names) < 60
    assert report.aggregates + len(names) == HOLDS + 1
    assert any(d.problem.startswith("SQLite says: ") for d in report.differences)


def test_f74_verify_finds_a_damaged_index_of_alarms_which_nothing_else_would(
    whole: Path, damaged: Path
) -> None:
    """The rows are right, and the clock would never find them."""
    page = pages_of(whole, "alarms_by_next_run_time")[0]
    report = verified(damaged_at(whole, damaged, page))
    assert report.found > 0
    assert all(d.problem.startswith("SQLite says: ") for d in report.differences)


def test_f74_verify_reads_the_log_where_its_index_cannot_be_read(
    whole: Path, damaged: Path
) -> None:
    page = pages_of(whole, "events_by_originator")[2]
    report = verified(damaged_at(whole, damaged, page))
    assert report.events == verified(whole).events
    assert any("what follows " in d.problem or "cannot" in d.problem for d in report.differences)


def test_f74_http_answers_a_problem_document_for_a_damaged_row(whole: Path, damaged: Path) -> None:
    damaged.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(damaged, isolation_level=None)) as connection:
        _without_constraints(connection, "reservations")
        connection.execute("UPDATE reservations SET version = NULL WHERE name = 'seat-7'")
    application = ReservationApplication(damaged)
    application.start(alarms=False)
    client = create_app(application).test_client()
    for path in ("/reservations/seat-7", "/reservations?prefix=seat-7"):
        answer = client.get(path)
        assert (answer.status_code, answer.json["code"]) == (500, "store-damaged")
    assert client.get("/reservations/seat-8").status_code == 200
    application.stop()
