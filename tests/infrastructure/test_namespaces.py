"""Namespaces: each a store of its own beside the others, on both stores."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reservation_expiry.api.cli import main
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import NoteServer
from reservation_expiry.infrastructure.errors import DatabaseRefused, LogDeleted
from reservation_expiry.infrastructure.namespaces import declare, delete, describe, listed
from reservation_expiry.infrastructure.replay.backup import backup, copy_log, import_log, restore
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import (
    Address,
    PostgresAddress,
    namespaced,
)
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.sql.tables import EVERYTHING
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.tokens import CreateToken, new_credential
from tests.support import logs
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.logs import verified
from tests.support.postgres import PostgresServer
from tests.support.server import url_of

NAMES = ("blue", "red", "green-2")


@pytest.fixture
def base(store: str, tmp_path: Path, postgres: PostgresServer) -> Address:
    """A database with the namespaces of NAMES beside it."""
    address: Address = tmp_path / "reservations.db"
    if store == "postgres":
        postgres.run("CREATE DATABASE namespaces")
        address = PostgresAddress(postgres.url(database="namespaces"))
    for name in NAMES:
        declare(namespaced(address, name))
    return address


@pytest.fixture(autouse=True)
def _dropped(postgres: PostgresServer) -> object:
    yield
    postgres.run("DROP DATABASE IF EXISTS namespaces WITH (FORCE)")


def fill(address: Address, clock: ManualClock) -> ReservationApplication:
    """With the log of `tests/support/logs.py`; still running, its alarms off."""
    application = ReservationApplication(address, clock)
    application.start(alarms=False)
    logs.fill(application, clock)
    return application


def log_id(address: Address) -> str:
    store = open_store(address)
    try:
        return Queries(store).log_id()
    finally:
        store.close()


def exported(address: Address, path: Path) -> bytes:
    store = open_store(address)
    try:
        export_log(store, str(path), force=True)
    finally:
        store.close()
    return path.read_bytes()


def run(address: Address, *words: str, input: str | None = None) -> Result:
    env = {"RESERVATION_DATABASE": url_of(address)}
    result = CliRunner().invoke(main, words, env=env, input=input)
    assert result.exception is None or isinstance(result.exception, SystemExit), result
    return result


@pytest.mark.parametrize(
    ("database", "theirs"),
    [
        ("data/reservations.db", "data/reservations.two-3.db"),
        ("plain", "plain.two-3"),
        ("postgresql://h/d", "postgresql://h/d?options=-csearch_path%3Drx_two_3"),
        (
            "postgresql://h/d?options=-cwork_mem%3D1MB&sslmode=require",
            "postgresql://h/d?options=-cwork_mem%3D1MB%20-csearch_path%3Drx_two_3&sslmode=require",
        ),
    ],
)
def test_a_namespace_is_beside_its_database(database: str, theirs: str) -> None:
    address = PostgresAddress(database) if "://" in database else Path(database)
    assert namespaced(address, "default") == address
    found = namespaced(address, "two-3")
    assert (found.url if isinstance(found, PostgresAddress) else str(found)) == theirs


def test_each_is_a_log_of_its_own(base: Address, clock: ManualClock) -> None:
    application = fill(namespaced(base, "blue"), clock)
    application.stop()
    assert {name: d.head for name, d in listed(base)} == {"blue": 9, "green-2": 0, "red": 0}
    assert len({log_id(namespaced(base, name)) for name in NAMES}) == 3
    assert not declare(namespaced(base, "blue")), "it is there, and stays as it is"
    assert verified(namespaced(base, "blue")).events == 9


def test_namespace_delete_empties_one_and_leaves_the_others_byte_for_byte(
    base: Address, clock: ManualClock, tmp_path: Path
) -> None:
    for name in NAMES:
        application = fill(namespaced(base, name), clock)
        application.writer.execute(CreateToken(new_credential(), "ci", "read", None))
        application.stop()
    others = [namespaced(base, name) for name in ("blue", "green-2")]
    before = [exported(other, tmp_path / "one.jsonl") for other in others]
    gone = delete(namespaced(base, "red"))
    assert (gone.events, gone.position, gone.reservations) == (9, 9, 3)
    assert [exported(other, tmp_path / "one.jsonl") for other in others] == before
    assert all(verified(other).found == 0 for other in others)
    for table in EVERYTHING:
        assert sql(namespaced(base, "red"), f"SELECT count(*) FROM {table.name}") == [(0,)]
    described = describe(namespaced(base, "red"))
    assert described is not None
    assert described.tombstone == gone


def test_namespace_delete_is_seen_by_whoever_writes(base: Address, clock: ManualClock) -> None:
    """As a process does that was frozen meanwhile: its next transaction is refused."""
    address = namespaced(base, "red")
    application = fill(address, clock)
    try:
        delete(address)
        refused = [
            lambda: application.hold("seat-9", 60),
            lambda: application.writer.execute(CreateToken(new_credential(), "x", "read", None)),
            lambda: application.writer.execute(NoteServer("token", "process")),
        ]
        for attempt in refused:
            with pytest.raises(LogDeleted):
                attempt()
        assert application.alarm_dispatcher.claim() == []
        assert application.is_deleted
        declare(address)
        for attempt in refused:
            with pytest.raises(LogDeleted, match="another log"):
                attempt()
    finally:
        application.stop()
    assert sql(address, "SELECT count(*) FROM events") == [(0,)]


def test_what_was_deleted_is_refused_until_it_is_declared_anew(base: Address) -> None:
    address = namespaced(base, "red")
    first = log_id(address)
    delete(address)
    for attempt in (lambda: prepare(address), lambda: delete(address)):
        with pytest.raises(DatabaseRefused, match="namespace create"):
            attempt()
    assert declare(address)
    assert log_id(address) != first
    prepare(address)


def test_a_copy_is_the_same_log_and_an_import_is_another(
    base: Address, clock: ManualClock, tmp_path: Path
) -> None:
    application = fill(namespaced(base, "blue"), clock)
    application.stop()
    source = namespaced(base, "blue")
    copy_log(source, tmp_path / "copy.db")
    assert log_id(tmp_path / "copy.db") == log_id(source)
    header = json.loads(exported(source, tmp_path / "log.jsonl").splitlines()[0])
    assert header["logId"] == log_id(source)
    import_log(str(tmp_path / "log.jsonl"), tmp_path / "import.db")
    assert log_id(tmp_path / "import.db") != log_id(source)


def test_a_backup_is_the_same_log_until_it_is_restored(log: Address, tmp_path: Path) -> None:
    if isinstance(log, PostgresAddress):
        pytest.skip("a server's database is not backed up as a file")
    backup(log, tmp_path / "backup.db")
    assert log_id(tmp_path / "backup.db") == log_id(log)
    restore(tmp_path / "backup.db", tmp_path / "restored.db")
    assert log_id(tmp_path / "restored.db") != log_id(log)
    assert verified(tmp_path / "restored.db").found == 0


def test_an_export_of_a_release_without_log_ids_is_read(
    log: Address, tmp_path: Path, new_address: Callable[[], Address]
) -> None:
    first, *rest = exported(log, tmp_path / "new.jsonl").splitlines(keepends=True)
    header = json.loads(first)
    del header["logId"]
    (tmp_path / "old.jsonl").write_bytes(json.dumps(header).encode() + b"\n" + b"".join(rest))
    import_log(str(tmp_path / "old.jsonl"), tmp_path / "import.db")
    assert verified(tmp_path / "import.db").events == 9


def test_the_command_line_takes_a_namespace_everywhere(base: Address) -> None:
    assert run(base, "hold", "seat-1", "--ttl", "60", "--namespace", "blue").exit_code == 0
    assert "seat-1" in run(base, "list", "--namespace", "blue").output
    assert "seat-1" not in run(base, "list", "--namespace", "red").output
    wrong = run(base, "list", "--namespace", "Blue")
    assert (wrong.exit_code, "3-40 lowercase" in wrong.output) == (2, True)
    undeclared = run(base, "serve", "--namespace", "yellow")
    assert undeclared.exit_code == 3
    assert "namespace create yellow" in undeclared.output


def test_namespace_delete_asks_for_the_name(base: Address) -> None:
    run(base, "hold", "seat-1", "--ttl", "60", "--namespace", "blue")
    slip = run(base, "namespace", "delete", "blue", "--yes", "red")
    assert (slip.exit_code, "nothing was deleted" in slip.output) == (2, True)
    slip = run(base, "namespace", "delete", "blue", input="bleu\n")
    assert slip.exit_code == 2
    typed = run(base, "namespace", "delete", "blue", input="blue\n")
    assert typed.exit_code == 0
    assert "Deleted: blue: 1 reservation, 2 events, 1 alarm" in typed.output
    shown = run(base, "namespace", "show", "blue", "--json")
    assert json.loads(shown.output)["status"] == "deleted"


def test_one_that_was_never_declared_is_told(base: Address) -> None:
    for words in (("show", "yellow"), ("delete", "yellow", "--yes", "yellow")):
        told = run(base, "namespace", *words)
        assert (told.exit_code, "namespace create yellow" in told.output) == (3, True)
