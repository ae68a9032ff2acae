"""What a connection to a file is set to, whatever was done to the file meanwhile."""

from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreBusy
from reservation_expiry.infrastructure.stores.sqlite.store import SqliteStore
from tests.support.database import connected, sql
from tests.support.invariants import check_invariants

FULL = 2


@pytest.mark.parametrize("read_only", [False, True])
def test_f38_each_connection_sets_what_a_promise_rests_on(
    database_path: Path, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", "/nonexistent")
    connection = SqliteStore(database_path).connect(read_only=read_only)
    asked = ("synchronous", "journal_mode", "locking_mode", "mmap_size", "temp_store")
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked]
    connection.close()
    assert found == [FULL, "wal", "normal", 0, 2]


@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST"])
def test_f38_a_file_that_was_taken_out_of_wal_mode_is_put_back_before_it_is_written(
    database_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert sql(database_path, f"PRAGMA journal_mode = {mode}") == [(mode.lower(),)]
    application = ReservationApplication(database_path)
    application.start(alarms=False)
    try:
        application.hold("seat-1", 60)
        assert sql(database_path, "PRAGMA journal_mode") == [("wal",)]
        assert "had been taken out of WAL mode" in caplog.text
    finally:
        application.stop()
    check_invariants(database_path)


@pytest.mark.real_time
def test_f38_while_somebody_reads_it_in_another_mode_callers_are_told_to_come_back(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.sqlite.database.BUSY_TIMEOUT_MS", 50
    )
    sql(database_path, "PRAGMA journal_mode = DELETE")
    application = ReservationApplication(database_path)
    application.start(alarms=False)
    try:
        with connected(database_path) as reader:
            reader.rows("BEGIN")
            reader.rows("SELECT * FROM log_head")
            with pytest.raises(StoreBusy):
                application.hold("seat-1", 60)
        assert application.hold("seat-1", 60).status == "held"
    finally:
        application.stop()
