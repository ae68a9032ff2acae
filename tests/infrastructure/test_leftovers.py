"""F87: what killed exports and imports leave beside their targets goes at the next run."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.machine import files
from reservation_expiry.infrastructure.machine.files import part_beside, sweep
from reservation_expiry.infrastructure.replay.backup import import_log
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.server import COMMAND, wait_for

pytestmark = pytest.mark.usefixtures("database_path")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


KILLED = """
import os, signal, sys
from pathlib import Path
from reservation_expiry.infrastructure.machine.files import part_beside
with part_beside(Path(sys.argv[1])) as part:
    Path(f"{part}-journal").touch()
    print("begun", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("name", ["reservations.db", "[a]*.jsonl", "\u00f6" * 120, "x" * 255])
def test_f87_parts_of_killed_writers_go_at_the_next_run_and_those_of_living_ones_stay(
    name: str, out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = out / name
    command = [sys.executable, "-c", KILLED, str(target)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdout.readline() == b"begun\n"
    assert len(names_in(out)) == 4
    writers[0].kill()
    writers[0].wait()
    with part_beside(target) as part:
        assert len(names_in(out)) == 3  # this one's, and the living one's two
        assert part.exists()
    assert caplog.text.count("which a killed process had left") == 1
    writers[1].send_signal(signal.SIGINT)
    writers[1].wait()
    for writer in writers:
        writer.stdout.close()
    assert names_in(out) == []


def test_f87_a_start_sweeps_what_a_killed_import_has_left(out: Path) -> None:
    part = out / ".reservations.db.0123abcd.part"
    part.touch()
    (out / ".other.db.0123abcd.part").touch()
    prepare(out / "reservations.db")
    assert not part.exists()
    assert (out / ".other.db.0123abcd.part").exists()


def test_f87_a_part_that_is_swept_before_it_is_locked_is_made_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not swept:
            swept.extend(out.iterdir())
            monkeypatch.setattr(files.fcntl, "flock", lock)
            sweep(out / "x")
        lock(descriptor, operation)

    monkeypatch.setattr(files.fcntl, "flock", late)
    with part_beside(out / "x") as part:
        assert part.exists()
        assert part not in swept


@pytest.mark.real_time
def test_f87_a_killed_export_of_the_command_line_leaves_nothing_after_the_next(
    log: Path, out: Path
) -> None:
    os.mkfifo(out / "pipe")
    command = [*COMMAND, "log", "import", str(out / "pipe"), "--database", str(out / "new.db")]
    process = subprocess.Popen(command)
    with (out / "pipe").open("wb"):  # it waits for its input
        wait_for(lambda: [name for name in names_in(out) if name.endswith(".part")], 10)
        process.kill()
        process.wait()
    store = open_store(log)
    export_log(store, str(out / "log.jsonl"))
    store.close()
    import_log(str(out / "log.jsonl"), out / "new.db")
    assert names_in(out) == ["log.jsonl", "new.db", "pipe"]
