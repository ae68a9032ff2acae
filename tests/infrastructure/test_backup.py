"""Backup and restore of a SQLite file: while it is served, and whatever lies beside it."""

import sqlite3
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import DamagedLog, DatabaseRefused, ForeignDatabase
from reservation_expiry.infrastructure.machine.files import FileRefused
from reservation_expiry.infrastructure.replay.backup import backup, restore
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.sqlite.database_file import DatabaseInUse
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.database import sql
from tests.support.logs import FOREIGN_TOPIC, verified

pytestmark = pytest.mark.usefixtures("database_path")


def test_a_backup_of_a_served_database_verifies_and_restores(
    application: ReservationApplication, database_path: Path, tmp_path: Path
) -> None:
    application.hold("seat-1", 600)
    report = backup(database_path, tmp_path / "backup.db")
    application.hold("seat-2", 600)
    application.stop()
    with pytest.raises(FileRefused, match="holds events already: --force replaces it"):
        restore(tmp_path / "backup.db", database_path)
    restored = restore(tmp_path / "backup.db", database_path, force=True)
    assert restored.digest == report.digest
    assert Queries(open_store(database_path)).reservation("seat-2") is None
    assert verified(database_path).found == 0


def test_restore_refuses_while_the_database_is_in_use(
    application: ReservationApplication, database_path: Path, tmp_path: Path
) -> None:
    application.hold("seat-1", 600)
    backup(database_path, tmp_path / "backup.db")
    with pytest.raises(DatabaseInUse, match="is in use"):
        restore(tmp_path / "backup.db", database_path, force=True)
    assert application.get("seat-1") is not None


def test_restore_is_not_fooled_by_a_wal_left_behind(log: Path, tmp_path: Path) -> None:
    """A WAL beside the target belongs to what was there; SQLite would replay it."""
    backup(log, tmp_path / "backup.db")
    target = tmp_path / "target.db"
    prepare(target)
    left = sqlite3.connect(target, isolation_level=None)
    left.execute("PRAGMA wal_autocheckpoint = 0")
    left.execute("INSERT INTO alarms VALUES ('reservation/ghost', 1.0, x'00')")
    wal = target.with_name("target.db-wal")
    content = wal.read_bytes()
    left.close()
    wal.write_bytes(content)
    restore(tmp_path / "backup.db", target)
    assert verified(target).found == 0


def test_a_backup_of_a_database_with_its_newest_commits_in_a_wal_has_them(
    log: Path, tmp_path: Path
) -> None:
    """As after a crash: the WAL is part of the database."""
    application = ReservationApplication(log)
    application.start(alarms=False)
    application.hold("seat-9", 600)
    copied = tmp_path / "copied.db"
    copied.write_bytes(log.read_bytes())
    copied.with_name("copied.db-wal").write_bytes(log.with_name(f"{log.name}-wal").read_bytes())
    application.stop()
    backup(copied, tmp_path / "backup.db")
    assert Queries(open_store(tmp_path / "backup.db")).reservation("seat-9") is not None


def test_a_restore_that_is_interrupted_leaves_the_target_as_it_was(
    log: Path, tmp_path: Path
) -> None:
    backup(log, tmp_path / "backup.db")
    target = tmp_path / "target.db"
    prepare(target)

    def interrupt(events: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(tmp_path / "backup.db", target, interrupt)
    assert Queries(open_store(target)).head().position == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_restore_refuses_a_backup_that_does_not_verify(log: Path, tmp_path: Path) -> None:
    backup(log, tmp_path / "backup.db")
    sql(tmp_path / "backup.db", FOREIGN_TOPIC)
    target = tmp_path / "target.db"
    prepare(target)
    with pytest.raises(DamagedLog, match="does not verify"):
        restore(tmp_path / "backup.db", target)
    assert verified(target).found == 0


def test_backup_and_restore_refuse_what_is_no_database(log: Path, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("hello " * 1000)
    with pytest.raises(ForeignDatabase):
        backup(tmp_path / "text.db", tmp_path / "out.db")
    with pytest.raises(DatabaseRefused, match="there is no database"):
        restore(tmp_path / "nothing.db", log)
    assert verified(log).found == 0


def test_a_backup_never_lands_on_a_database_that_is_open(
    application: ReservationApplication, database_path: Path, tmp_path: Path
) -> None:
    """Renamed over it, the copy would be beside a WAL that is not its own."""
    application.hold("seat-1", 600)
    with pytest.raises(DatabaseRefused, match="is the database itself"):
        backup(database_path, database_path)
    other = tmp_path / "other.db"
    prepare(other)
    reader = sqlite3.connect(other)
    reader.execute("SELECT * FROM alarms").fetchall()
    with pytest.raises(DatabaseInUse):
        backup(database_path, other)
    reader.close()
