"""F81: what cannot be written is refused before anything is served, with the file's name, by
all commands that write and by `--check` in the same words."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import reservation_expiry.api.cli.alarms
import reservation_expiry.api.cli.log
import reservation_expiry.api.cli.reservations
import reservation_expiry.api.cli.serve
import reservation_expiry.api.schedules
import reservation_expiry.api.server  # noqa: F401  # all that a child without rights could not import any more
from reservation_expiry.api.cli import main
from reservation_expiry.infrastructure.replay.backup import backup
from reservation_expiry.infrastructure.startup import prepare
from tests.support.server import free_port
from tests.support.unprivileged import (
    as_nobody,
    nobodys_folder,
    remounted_read_only,
    small_disk,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with nobodys_folder() as folder:
        yield folder
        folder.chmod(0o700)


@pytest.fixture
def database(folder: Path) -> Path:
    """A database of nobody's, with one hold."""
    path = folder / "reservations.db"

    def make() -> None:
        prepare(path)
        ran(path, "hold", "seat-1", "--ttl", "600")

    as_nobody(make)
    return path


def ran(database: Path, *words: str) -> tuple[int, str]:
    """Exit code, and what was said on standard error without the time."""
    words = tuple(word.format(port=free_port()) for word in words)
    result = CliRunner().invoke(main, words, env={"RESERVATION_DATABASE": str(database)})
    assert result.exception is None or isinstance(result.exception, SystemExit), result
    return result.exit_code, result.stderr


def read_only_file(path: Path) -> Path:
    path.chmod(0o444)
    return path


def read_only_folder(path: Path) -> Path:
    path.parent.chmod(0o555)
    return path.parent


def somebody_elses_wal(path: Path) -> Path:
    """As root leaves it behind who looks into the file with sqlite3 and is killed."""
    wal = path.with_name(path.name + "-wal")
    wal.touch()
    if os.getuid() == 0:
        os.chown(wal, 0, 0)
        wal.chmod(0o644)
    else:
        wal.chmod(0o444)
    return wal


OBSTACLES: list[Callable[[Path], Path]] = [read_only_file, read_only_folder, somebody_elses_wal]
WRITING = [
    ("serve", "--check", "--port", "{port}"),
    ("serve", "--port", "{port}"),
    ("hold", "seat-2", "--ttl", "5"),
    ("alarms", "redrive", "--all"),
    ("log", "rebuild"),
    ("log", "replay", "seat-1", "--now", "1800000060000"),
    ("schedule", "put", "agent", "tea", "--at", "1900000000000"),
]


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda o: o.__name__)
def test_f81_what_cannot_be_written_is_refused_in_the_words_of_check(
    obstacle: Callable[[Path], Path], words: tuple[str, ...], database: Path
) -> None:
    named = obstacle(database)
    code, said = as_nobody(lambda: ran(database, *words))
    _, said_by_check = as_nobody(lambda: ran(database, *WRITING[0]))
    assert code == 3
    assert said == said_by_check
    (line,) = said.splitlines()
    assert f"{named} cannot be written by this account" in line


@pytest.mark.parametrize("words", WRITING[:3], ids=" ".join)
def test_f81_a_read_only_file_system_is_refused(words: tuple[str, ...], folder: Path) -> None:
    with small_disk(folder, 4):
        path = folder / "reservations.db"
        prepare(path)
        remounted_read_only(folder)
        code, said = ran(path, *words)
    assert (code, len(said.splitlines())) == (3, 1)
    assert f"{path} cannot be written by this account" in said


def test_f81_what_sqlite_alone_knows_of_is_refused_too(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `access` says: only a write tells."""
    monkeypatch.setattr(os, "access", lambda *_: True)
    read_only_file(database)
    code, said = as_nobody(lambda: ran(database, *WRITING[0]))
    assert code == 3
    assert f"{database} cannot be opened for writing" in said
    assert "readonly" in said


def test_f81_a_backup_on_a_read_only_disk_is_read_and_restored(
    database: Path, folder: Path, tmp_path: Path
) -> None:
    copy = folder / "copy.db"
    as_nobody(lambda: backup(database, copy))
    copy.chmod(0o444)
    folder.chmod(0o555)
    with nobodys_folder() as elsewhere:
        assert as_nobody(lambda: ran(elsewhere / "x.db", "restore", str(copy)))[0] == 0
        assert as_nobody(lambda: ran(copy, "list"))[0] == 0
        with sqlite3.connect(elsewhere / "x.db") as connection:
            assert connection.execute("SELECT count(*) FROM events").fetchone() == (2,)
        connection.close()
