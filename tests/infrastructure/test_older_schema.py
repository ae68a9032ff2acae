"""F85: a file of an older release: what serves and what copies it migrates, all else reads what
every schema has or says what to do."""

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reservation_expiry.api.cli import main
from reservation_expiry.infrastructure.startup import check, prepare
from reservation_expiry.infrastructure.stores.sqlite.schema import MIGRATIONS
from tests.support.invariants import check_invariants
from tests.support.logs import verified
from tests.support.server import free_port

SCHEMA_1 = Path(__file__).parent / "golden" / "schema-1.sql"
DIGEST = "e3a788a2d76a2011867cfaa8c5e3f014"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A database as the release before durable objects wrote it: nine events."""
    path = tmp_path / "older.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_1.read_text())
    connection.close()
    return path


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA user_version").fetchone()[0]
    finally:
        connection.close()


def run(database: Path, *words: str) -> Result:
    result = CliRunner().invoke(main, words, env={"RESERVATION_DATABASE": str(database)})
    assert result.exception is None or isinstance(result.exception, SystemExit), result
    return result


def test_f85_a_backup_of_an_older_file_is_migrated_and_the_file_is_not(
    older: Path, tmp_path: Path
) -> None:
    result = run(older, "backup", str(tmp_path / "backup.db"))
    assert (result.exit_code, DIGEST in result.output) == (0, True), result.output
    assert version_of(tmp_path / "backup.db") == len(MIGRATIONS)
    assert version_of(older) == 1
    assert verified(tmp_path / "backup.db").found == 0


@pytest.mark.parametrize("onto", ["nothing", "an empty database", "an older one, with --force"])
def test_f85_a_backup_of_an_older_schema_is_restored_and_migrated(
    onto: str, older: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target.db"
    if onto == "an empty database":
        prepare(target)
    elif onto != "nothing":
        target.write_bytes(older.read_bytes())
        assert run(target, "restore", str(older)).exit_code == 3
    result = run(target, "restore", str(older), "--force")
    assert (result.exit_code, DIGEST in result.output) == (0, True), result.output
    assert version_of(target) == len(MIGRATIONS)
    assert check(target) == "ready"
    check_invariants(target)


# What is done to an older file, and how it ends: 0, or 3 with what to do.
COMMANDS = {
    ("log", "digest"): 0,
    ("log", "export", "-"): 0,
    ("log", "diff", "--from", "1800000000000", "--to", "1900000000000"): 0,
    ("events",): 0,
    ("history", "seat-1"): 0,
    ("serve", "--check", "--port", "{port}"): 0,
    ("copy", "--from", "{older}", "--to", "{copy}"): 0,
    ("backup", "{copy}"): 0,
    ("list",): 3,
    ("show", "seat-1"): 3,
    ("hold", "seat-1", "--ttl", "5"): 3,
    ("alarms", "list"): 3,
    ("alarms", "redrive", "--all"): 3,
    ("log", "verify"): 3,
    ("log", "rebuild"): 3,
    ("log", "replay", "seat-1", "--now", "1800000060000"): 3,
    ("schedule", "list", "agent"): 3,
    ("schedule", "show", "agent", "tea"): 3,
    ("schedule", "put", "agent", "tea", "--at", "1900000000000"): 3,
    ("schedule", "cancel", "agent", "tea"): 3,
    ("schedule", "redrive", "agent", "tea"): 3,
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_f85_every_command_works_on_an_older_file_or_says_what_to_do(
    words: tuple[str, ...], older: Path, tmp_path: Path
) -> None:
    before = older.read_bytes()
    places = {"older": older, "copy": tmp_path / "copy.db", "port": free_port()}
    result = run(older, *(word.format(**places) for word in words))
    assert result.exit_code == COMMANDS[words], result.output
    if result.exit_code:
        needs = f"has schema 1, this release needs {len(MIGRATIONS)}: serve it once to migrate it"
        assert needs in result.output
    assert older.read_bytes() == before
    if (tmp_path / "copy.db").exists():
        assert verified(tmp_path / "copy.db").digest == DIGEST


def test_f85_import_never_goes_into_an_older_file_that_holds_events(
    older: Path, tmp_path: Path
) -> None:
    run(older, "log", "export", str(tmp_path / "log.jsonl"))
    result = run(older, "log", "import", str(tmp_path / "log.jsonl"))
    assert (result.exit_code, "holds events already" in result.output) == (3, True)


def test_f85_an_older_file_that_is_served_is_migrated(older: Path) -> None:
    assert check(older) == "will be migrated"
    assert version_of(older) == 1
    assert prepare(older).overview.open_holds == 2
    assert version_of(older) == len(MIGRATIONS)
    check_invariants(older)
