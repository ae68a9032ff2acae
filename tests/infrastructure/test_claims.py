"""F84: nothing that was answered is lost to an import, a copy, a restore or a backup that takes
a while: its target is held from the beginning, or looked at again at the end, under a lock."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import ImportRefused, StoreBusy
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.backup import (
    backup,
    copy_log,
    fill,
    import_log,
    restore,
)
from reservation_expiry.infrastructure.replay.transfer import export_log, read_store
from reservation_expiry.infrastructure.startup import check, prepare
from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore
from reservation_expiry.infrastructure.stores.sqlite.database_file import DatabaseInUse
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.clock import ManualClock
from tests.support.database import have_little_patience
from tests.support.logs import verified
from tests.support.postgres import PostgresServer
from tests.support.server import COMMAND, Server, wait_for


def held_and_stopped(address: Address, name: str) -> None:
    """As a server that answers one request and stops."""
    prepare(address)
    application = ReservationApplication(address)
    application.start(alarms=False)
    application.hold(name, 600)
    application.stop()


def is_held(address: Address, name: str) -> bool:
    application = ReservationApplication(address)
    try:
        return application.get(name) is not None
    finally:
        application.stop()


@pytest.fixture
def exported(log: Path, database_path: Path, tmp_path: Path) -> Path:
    store = open_store(log)
    export_log(store, str(tmp_path / "log.jsonl"))
    store.close()
    return tmp_path / "log.jsonl"


@pytest.mark.real_time
def test_f84_an_import_is_refused_if_a_server_made_its_target_meanwhile(
    exported: Path, tmp_path: Path
) -> None:
    """Real processes; the import waits for its input all the while."""
    pipe, target = tmp_path / "pipe", tmp_path / "served.db"
    os.mkfifo(pipe)
    command = [*COMMAND, "log", "import", str(pipe), "--database", str(target)]
    importing = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with pipe.open("wb") as source:
        wait_for(lambda: list(tmp_path.glob(".served.db.*.part")), 10)
        server = Server(tmp_path, database=target).start()
        server.hold("seat-9", 600)
        assert server.stop() == 0
        source.write(exported.read_bytes())
    assert importing.wait(30) == 3
    with importing.stderr as said:
        assert "was made by another process meanwhile" in said.read()
    assert is_held(target, "seat-9")
    assert verified(target).found == 0
    assert not list(tmp_path.glob(".*.part"))


def test_f84_a_server_is_refused_while_its_empty_database_is_being_filled(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target.db"
    prepare(target)
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.sqlite.database.BUSY_TIMEOUT_MS", 20
    )
    refused: list[str] = []

    def in_the_middle(events: int) -> None:
        for start in (prepare, check):
            with pytest.raises(StoreBusy, match="another process holds") as busy:
                start(target)
            refused.append(str(busy.value))

    import_log(str(exported), target, in_the_middle)
    assert len(refused) >= 2
    assert verified(target).events == 9
    held_and_stopped(target, "seat-9")


def test_f84_a_server_that_waits_for_a_database_that_is_being_filled_serves_what_was_imported(
    exported: Path, tmp_path: Path
) -> None:
    """It has the file open already; that must be the file of the import."""
    target = tmp_path / "target.db"
    prepare(target)
    server = threading.Thread(target=held_and_stopped, args=(target, "seat-9"))

    def in_the_middle(events: int) -> None:
        if not server.ident:
            server.start()
            time.sleep(0.1)  # enough for it to have opened the file, and no harm if not

    import_log(str(exported), target, in_the_middle)
    server.join(10)
    assert verified(target).events == 11
    assert is_held(target, "seat-9")
    assert is_held(target, "seat-1")


@pytest.mark.parametrize("writer", [backup, restore])
def test_f84_a_database_made_meanwhile_is_not_replaced_by_a_backup_or_a_restore(
    writer: object, log: Path, database_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target.db"

    def in_the_middle(events: int) -> None:
        if not target.exists():
            held_and_stopped(target, "seat-9")

    with pytest.raises(DatabaseInUse, match="meanwhile"):
        writer(log, target, in_the_middle, force=True)
    assert is_held(target, "seat-9")


def test_f84_a_restore_that_replaces_keeps_everybody_out_until_it_is_done(
    log: Path, database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target.db"
    held_and_stopped(target, "seat-8")
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.sqlite.database.BUSY_TIMEOUT_MS", 20
    )

    def in_the_middle(events: int) -> None:
        with pytest.raises(StoreBusy):
            held_and_stopped(target, "seat-9")

    restore(log, target, in_the_middle, force=True)
    assert not is_held(target, "seat-8")
    assert is_held(target, "seat-1")


def test_f84_a_leftover_of_a_database_that_has_gone_is_not_replayed_into_a_new_one(
    log: Path, database_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target.db"
    for suffix in ("-wal", "-shm", "-journal"):
        target.with_name(target.name + suffix).write_bytes(b"x" * 8_192)
    copy_log(log, target)
    assert verified(target).found == 0


# PostgreSQL: under the log's lock


@pytest.fixture
def server_address(postgres: PostgresServer) -> PostgresAddress:
    return postgres.address("claims")


def test_f84_a_node_waits_while_a_servers_database_is_filled_and_its_hold_comes_after(
    log: Path,
    database_path: Path,
    server_address: PostgresAddress,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare(server_address)
    node = ReservationApplication(server_address, clock)
    node.start(alarms=False)
    have_little_patience(monkeypatch)
    tried: list[int] = []

    def in_the_middle(events: int) -> None:
        with pytest.raises(StoreBusy):
            node.hold("seat-9", 600)
        tried.append(events)

    store, target = open_store(log), PostgresStore(server_address)
    batches = read_store(store, EventMapper(), in_the_middle)
    fill(target, batches)
    assert tried
    assert node.hold("seat-9", 600).version == 2
    node.stop()
    store.close()
    target.close()
    assert verified(server_address).found == 0


def test_f84_a_node_that_answered_before_a_servers_database_is_filled_keeps_its_hold(
    log: Path, database_path: Path, server_address: PostgresAddress
) -> None:
    def batches() -> Iterator[list[tuple]]:
        raise AssertionError("nothing is to be read for it")
        yield []

    held_and_stopped(server_address, "seat-9")
    target = PostgresStore(server_address)
    with (
        pytest.raises(ImportRefused, match="holds events already"),
        target.filling() as filling,
    ):
        filling.append(batches())
    target.close()
    assert is_held(server_address, "seat-9")
