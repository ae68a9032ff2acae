"""Files for people: exports and backups appear whole, for their owner alone, and nothing that
is not theirs to replace is replaced."""

import gzip
import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.errors import DatabaseRefused, ForeignDatabase, StoreFull
from reservation_expiry.infrastructure.machine import files
from reservation_expiry.infrastructure.machine.files import (
    FileRefused,
    make_folder,
    open_to_others,
    part_beside,
)
from reservation_expiry.infrastructure.replay.backup import backup, import_log, restore
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.logs import verified
from tests.support.server import COMMAND, free_port
from tests.support.unprivileged import remounted_read_only, small_disk

pytestmark = pytest.mark.usefixtures("database_path")


def export(log: Address, target: Path | str, *, force: bool = False) -> int:
    store = open_store(log)
    try:
        return export_log(store, str(target), force=force)
    finally:
        store.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


# F63: what is there already

Write = Callable[[Path, Path, bool], object]
WRITERS: dict[str, Write] = {
    "export": lambda log, target, force: export(log, target, force=force),
    "backup": lambda log, target, force: backup(log, target, force=force),
    "restore": lambda log, target, force: restore(log, target, force=force),
}


def text_file(path: Path) -> None:
    path.write_text("to do: buy milk\n" * 100)


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE milk (litres)")
    connection.close()


FOREIGN = (text_file, foreign_database)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
@pytest.mark.parametrize("force", [False, True], ids=["", "--force"])
def test_f63_a_foreign_file_is_never_replaced(
    writer: str, make: Callable[[Path], None], force: bool, log: Path, out: Path
) -> None:
    target = out / "target"
    make(target)
    before = target.read_bytes()
    with pytest.raises((FileRefused, ForeignDatabase), match=str(target)):
        WRITERS[writer](log, target, force)
    assert target.read_bytes() == before
    assert names_in(out) == ["target"]


def test_f63_an_export_does_not_replace_a_database_nor_a_backup_an_export(
    log: Path, out: Path
) -> None:
    export(log, out / "log.jsonl")
    backup(log, out / "backup.db")
    with pytest.raises(FileRefused):
        export(log, out / "backup.db", force=True)
    with pytest.raises(ForeignDatabase):
        backup(log, out / "log.jsonl", force=True)


@pytest.mark.parametrize("writer", WRITERS)
def test_f63_a_file_of_ours_is_replaced_with_force_only_and_keeps_its_mode_owner_and_link(
    writer: str, log: Path, out: Path
) -> None:
    target, link = out / "target", out / "link"
    WRITERS[writer](log, target, False)
    target.chmod(0o640)
    if os.getuid() == 0:
        os.chown(target, 12345, 23456)
    owner = (target.stat().st_uid, target.stat().st_gid)
    before = target.read_bytes()
    link.symlink_to("target")
    with pytest.raises(FileRefused, match="--force replaces it"):
        WRITERS[writer](log, link, False)
    assert target.read_bytes() == before
    WRITERS[writer](log, link, True)
    assert link.is_symlink()
    assert mode_of(target) == 0o640
    assert (target.stat().st_uid, target.stat().st_gid) == owner
    assert names_in(out) == ["link", "target"]


@pytest.mark.parametrize("writer", WRITERS)
def test_f63_an_empty_file_is_as_good_as_none_and_a_dangling_link_is_written_through(
    writer: str, log: Path, out: Path
) -> None:
    (out / "empty").touch(mode=0o600)
    (out / "link").symlink_to("there")
    for name in ("empty", "link"):
        WRITERS[writer](log, out / name, False)
    assert (out / "link").is_symlink()
    assert (out / "there").stat().st_size > 0
    assert names_in(out) == ["empty", "link", "there"]


def test_f63_restore_replaces_another_log_with_force_only_and_one_without_events_always(
    log: Path, out: Path
) -> None:
    backup(log, out / "backup.db")
    prepare(out / "empty.db")
    inode = (out / "empty.db").stat().st_ino
    restore(out / "backup.db", out / "empty.db")
    assert verified(out / "empty.db").events == 9
    assert (out / "empty.db").stat().st_ino == inode, "a server may be waiting for that file"


def test_f63_a_database_that_is_damaged_is_restored_with_force(log: Path, out: Path) -> None:
    backup(log, out / "backup.db")
    damaged = bytearray((out / "backup.db").read_bytes())
    damaged[4096:] = bytes(len(damaged) - 4096)
    (out / "target.db").write_bytes(damaged)
    with pytest.raises(FileRefused):
        restore(out / "backup.db", out / "target.db")
    restore(out / "backup.db", out / "target.db", force=True)
    assert verified(out / "target.db").found == 0
    (out / "cut.db").write_bytes(damaged[:6_000])
    with pytest.raises(DatabaseRefused, match="too damaged to be replaced: move it away"):
        restore(out / "backup.db", out / "cut.db", force=True)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full"])
def test_f63_a_device_is_written_to(device: str, log: Path, out: Path) -> None:
    """A node of our own: the system's would have to be made anew if this failed."""
    node = out / "device"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, Path(device).stat().st_rdev)
        node.open("wb").close()
    except PermissionError:
        pytest.skip("NOT TESTED: this user may not make a device")
    if device == "/dev/full":
        with pytest.raises(OSError, match=f"No space left on device.*{node}"):
            export(log, node)
    else:
        assert export(log, node) == 9
    assert stat.S_ISCHR(node.stat().st_mode)
    assert names_in(out) == ["device"]


def test_f63_a_pipe_is_written_to(log: Path, out: Path) -> None:
    os.mkfifo(out / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((out / "pipe").read_bytes()))
    reader.start()
    export(log, out / "pipe")
    reader.join(10)
    assert len(read[0].splitlines()) == 10
    assert stat.S_ISFIFO((out / "pipe").stat().st_mode)


def test_f63_the_names_of_standard_output_are_known(out: Path) -> None:
    """Not tried by writing: if this failed, the system's own link might be lost."""
    (out / "link").symlink_to("/dev/stdout")
    (out / "next").symlink_to("link")
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", out / "next"):
        assert files._stream_at(Path(name)) == 1
    assert files._stream_at(Path("/dev/stderr")) == 2
    assert files._stream_at(Path("/dev/fd/63")) == 63
    assert files._stream_at(out / "stdout") is None


@pytest.mark.parametrize("name", ["/dev/fd/1", "/proc/self/fd/1", "link", "-"])
def test_f63_standard_output_is_written_to_where_it_stands(name: str, log: Path, out: Path) -> None:
    """What somebody else wrote there before stays."""
    (out / "link").symlink_to("/dev/stdout")
    target = str(out / name) if name == "link" else name
    command = [*COMMAND, "log", "export", target, "--database", str(log)]
    with (out / "all.txt").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        subprocess.run(command, stdout=file, check=True, stderr=subprocess.DEVNULL)
        file.write(b"after\n")
    lines = (out / "all.txt").read_bytes().splitlines()
    assert (lines[0], lines[-1], len(lines)) == (b"before", b"after", 12)
    assert names_in(out) == ["all.txt", "link"]


def test_an_export_is_known_again_by_its_first_line_zipped_or_not(log: Path, out: Path) -> None:
    for name in ("log.jsonl", "log.jsonl.gz"):
        export(log, out / name)
        export(log, out / name, force=True)
    (out / "other.gz").write_bytes(gzip.compress(b"milk\n" * 100))
    with pytest.raises(FileRefused):
        export(log, out / "other.gz", force=True)


# F67: for their owner alone


@pytest.mark.parametrize("mask", [0o022, 0o000, 0o077, 0o777])
def test_f67_what_is_made_is_for_its_owner_alone_whatever_the_umask(
    mask: int, log: Path, out: Path
) -> None:
    with umask(mask):
        new = out / "new" / "folder" / "reservations.db"
        prepare(new)
        backup(log, out / "backup.db")
        export(log, out / "log.jsonl")
        import_log(str(out / "log.jsonl"), out / "imported" / "copy.db")
        writing = sqlite3.connect(new, isolation_level=None)
        writing.execute("UPDATE log_head SET projected_position = 0")
    made = {str(path.relative_to(out)): mode_of(path) for path in out.rglob("*")}
    writing.close()
    folders = {"new", "new/folder", "imported"}
    assert {name for name, mode in made.items() if mode == 0o700} == folders
    assert {mode for name, mode in made.items() if name not in folders} == {0o600}
    assert {"new/folder/reservations.db-wal", "new/folder/reservations.db-shm"} <= made.keys()


def test_f67_a_part_is_never_readable_for_others(out: Path) -> None:
    with umask(0), part_beside(out / "log.jsonl") as part:
        assert mode_of(part) == 0o600


def test_f67_what_others_may_use_is_said(out: Path) -> None:
    path = out / "x.db"
    path.touch(0o600)
    out.chmod(0o755)
    assert list(open_to_others(path)) == []
    path.chmod(0o644)
    (sentence,) = open_to_others(path)
    assert sentence == f"other accounts may use {path}, whose mode is 0644: chmod 600 it"
    path.chmod(0o600)
    out.chmod(0o777)
    (sentence,) = open_to_others(path)
    assert str(out) in sentence
    out.chmod(0o1777)
    assert list(open_to_others(path)) == []


def test_f67_a_start_and_a_check_say_it_in_one_line(database_path: Path) -> None:
    database_path.chmod(0o644)
    port = str(free_port())
    command = [*COMMAND, "serve", "--check", "--port", port, "--database", str(database_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert "whose mode is 0644: chmod 600 it" in line
    assert mode_of(database_path) == 0o644


def test_a_folder_that_is_there_is_left_as_it_is(out: Path) -> None:
    out.chmod(0o755)
    make_folder(out)
    assert mode_of(out) == 0o755


# Disks that cannot


def test_f63_a_full_disk_is_told_and_nothing_is_left_on_it(log: Path, out: Path) -> None:
    with small_disk(out, 1):
        export(log, out / "log.jsonl")
        before = (out / "log.jsonl").read_bytes()
        with (out / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError:
                pass
        with pytest.raises(OSError, match=f"No space left on device.*{out}/log.jsonl"):
            export(log, out / "log.jsonl", force=True)
        assert (out / "log.jsonl").read_bytes() == before
        with pytest.raises((StoreFull, OSError)):
            backup(log, out / "backup.db")
        assert names_in(out) == ["filler", "log.jsonl"]


def test_f63_a_read_only_file_system_is_told(log: Path, out: Path) -> None:
    with small_disk(out, 1):
        export(log, out / "log.jsonl")
        remounted_read_only(out)
        with pytest.raises(OSError, match=f"Read-only file system.*{out}/log.jsonl"):
            export(log, out / "log.jsonl", force=True)
        for write in WRITERS.values():
            with pytest.raises(OSError, match=f"Read-only file system.*{out}/new"):
                write(log, out / "new", False)
        assert names_in(out) == ["log.jsonl"]


def test_a_file_made_by_somebody_else_meanwhile_is_not_replaced(
    log: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, sync = out / "log.jsonl", files.sync

    def slow(path: Path) -> None:
        target.write_text("hello")
        sync(path)

    monkeypatch.setattr(files, "sync", slow)
    with pytest.raises(FileRefused, match="was made by another process meanwhile"):
        export(log, target)
    assert target.read_text() == "hello"
    assert names_in(out) == ["log.jsonl"]


def test_where_there_are_no_hard_links_a_file_appears_all_the_same(
    log: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    export(log, out / "log.jsonl")
    backup(log, out / "backup.db")
    assert verified(out / "backup.db").found == 0
    assert names_in(out) == ["backup.db", "log.jsonl"]
    assert Queries(open_store(out / "backup.db")).head().position == 9
