"""Verify, rebuild, export, import, backup, restore: each fault found, each mended."""

import gzip
import json
import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from infrastructure.application import ReservationApplication
from infrastructure.backup import backup, import_log, restore
from infrastructure.diff import diff
from infrastructure.errors import DamagedLog, DatabaseRefused, ForeignDatabase, StoreUnavailable
from infrastructure.event_mapper import EventMapper
from infrastructure.parallel_verify import verify_with_all_cores
from infrastructure.rebuild import rebuild
from infrastructure.sqlite.database import Database
from infrastructure.sqlite.queries import Queries
from infrastructure.sqlite.whole_file import DatabaseInUse
from infrastructure.startup import prepare
from infrastructure.transfer import ImportRefused, export_log
from infrastructure.verify import VerifyReport, verify
from tests.support.clock import ManualClock


@pytest.fixture
def log(application: ReservationApplication, clock: ManualClock, database_path: Path) -> Path:
    """Three holds, one of them expired, one moved: eight events in all."""
    application.hold("seat-1", 60)
    application.hold("seat-2", 60)
    clock.advance(10_000)
    application.hold("seat-2", 600)
    application.hold("seat-3", 5)
    application.expire("seat-3", clock.now_ms() + 5_000)
    application.stop()
    return database_path


def verified(path: Path) -> VerifyReport:
    database = Database(path)
    try:
        return verify(database, EventMapper())
    finally:
        database.close()


def exported_from(path: Path, target: Path) -> int:
    database = Database(path)
    try:
        return export_log(database, str(target))
    finally:
        database.close()


def tamper(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_an_untouched_database_verifies(log: Path) -> None:
    report = verified(log)
    assert (report.events, report.aggregates, report.found) == (9, 3, 0)


# F23: each kind of damage, and the position that the report must name.
DAMAGE = {
    "an altered event that a later one superseded": (
        "UPDATE events SET state = CAST(replace(CAST(state AS TEXT), '1800000000000', "
        "'1800000000001') AS BLOB) WHERE position = 3",
        3,
        "checksum",
    ),
    "an altered time of recording": (
        "UPDATE events SET recorded_at_ms = recorded_at_ms + 1 WHERE position = 5",
        5,
        "checksum",
    ),
    "a cut-off tail": ("DELETE FROM events WHERE position > 7", 7, "was committed"),
    "a missing event in the middle": ("DELETE FROM events WHERE position = 4", 4, "no events"),
    "a deleted alarm": (
        "DELETE FROM alarms WHERE id = 'reservation/seat-1'",
        2,
        "has no alarm",
    ),
    "an alarm moved": (
        'UPDATE alarms SET job_state = CAST(\'{"v":1,"scheduled_time":7}\' AS BLOB) '
        "WHERE id = 'reservation/seat-1'",
        2,
        "alarm at 7",
    ),
    "an alarm of nothing": (
        "INSERT INTO alarms VALUES ('reservation/ghost', 1.0, x'7b7d')",
        None,
        "an alarm of nothing",
    ),
    "an alarm of what has ended": (
        "INSERT INTO alarms VALUES ('reservation/seat-3', 1.0, x'7b7d')",
        9,
        "no open hold",
    ),
    "a changed read-model row": (
        "UPDATE reservations SET expiration_count = 1 WHERE name = 'seat-2'",
        6,
        "expiration_count is 1, the log says 0",
    ),
    "a missing read-model row": (
        "DELETE FROM reservations WHERE name = 'seat-2'",
        6,
        "missing from the read model",
    ),
    "a read-model row of nothing": (
        "INSERT INTO reservations VALUES ('zzz', 1, 'held', 1, 2, NULL, 0, 2)",
        None,
        "the log does not",
    ),
    "a foreign topic": ("UPDATE events SET topic = 'os:system' WHERE position = 1", 1, "os:system"),
    "a version that does not follow": (
        "UPDATE events SET originator_version = 9 WHERE position = 6",
        6,
        "version 9 where 4",
    ),
    "an id that is not ours": (
        "UPDATE events SET originator_id = 'sneaky/x' WHERE position = 9",
        9,
        "not an id of ours",
    ),
    "a head that lies": ("UPDATE log_head SET checksum = x'00'", 9, "another checksum"),
    "projections left behind": (
        "UPDATE log_head SET projected_position = 4",
        4,
        "projections stand at position 4",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_verify_finds_and_names_the_position_of(kind: str, log: Path) -> None:
    statement, position, problem = DAMAGE[kind]
    tamper(log, statement)
    report = verified(log)
    assert any(d.position == position and problem in d.problem for d in report.differences), report


@pytest.mark.parametrize("events", [1, 2, 4])
@pytest.mark.parametrize("kind", DAMAGE)
def test_verify_in_parts_finds_what_verify_at_once_finds(
    kind: str, events: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts so small that damage lies in, before and behind a part's bounds."""
    tamper(log, DAMAGE[kind][0])
    at_once = verified(log)
    monkeypatch.setattr("infrastructure.verify.PART_EVENTS", events)
    in_parts = verified(log)
    assert in_parts == at_once


def test_verify_with_two_processes_finds_what_one_finds(log: Path) -> None:
    tamper(log, *(DAMAGE[kind][0] for kind in ("a deleted alarm", "an altered time of recording")))
    read: list[int] = []
    database = Database(log)
    report = verify_with_all_cores(database, read.append, processes=2)
    database.close()
    assert report == verified(log)
    assert report.found == 2
    assert sum(read) == 2 * 9


def test_a_verifying_process_that_is_killed_is_told_of(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infrastructure.parallel_verify._verify_in_worker", die)
    database = Database(log)
    with pytest.raises(StoreUnavailable, match="was killed"):
        verify_with_all_cores(database, processes=2)
    database.close()


def die(path: Path, part: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_verify_finds_an_expiry_that_the_rules_would_not_have_decided(log: Path) -> None:
    tamper(
        log,
        "UPDATE events SET state = x'7b22657870697265645f61745f6d73223a317d' "
        "WHERE topic = 'reservation.Expired'",
    )
    assert any("Expired at 1, before" in d.problem for d in verified(log).differences)


def mend(path: Path) -> int:
    application = ReservationApplication(path)
    application.start(alarms=False)
    try:
        return rebuild(application.writer, application.mapper).mended
    finally:
        application.stop()


PROJECTION_DAMAGE = [kind for kind in DAMAGE if "alarm" in kind or "read-model" in kind]


@pytest.mark.parametrize("kind", PROJECTION_DAMAGE)
def test_rebuild_mends(kind: str, log: Path) -> None:
    tamper(log, DAMAGE[kind][0])
    assert mend(log) == 1
    assert verified(log).found == 0


def test_rebuild_of_a_healthy_database_writes_nothing(log: Path) -> None:
    before = sqlite3.connect(log).execute("PRAGMA data_version").fetchone()
    connection = sqlite3.connect(log)
    version = connection.execute("PRAGMA data_version").fetchone()
    assert mend(log) == 0
    assert connection.execute("PRAGMA data_version").fetchone() == version == before


def test_rebuild_keeps_what_an_alarm_has_been_through(log: Path) -> None:
    state = b'{"v":1,"scheduled_time":1800000060000,"attempts":3}'
    connection = sqlite3.connect(log, isolation_level=None)
    connection.execute(
        "UPDATE alarms SET next_run_time = NULL, job_state = ? WHERE id = 'reservation/seat-1'",
        (state,),
    )
    assert mend(log) == 0
    row = connection.execute("SELECT * FROM alarms WHERE id = 'reservation/seat-1'").fetchone()
    assert row == ("reservation/seat-1", None, state)


def test_rebuild_beside_a_busy_application_fails_no_command(
    application: ReservationApplication, database_path: Path
) -> None:
    for number in range(300):
        application.hold(f"seat-{number}", 600)
    stop, failures = threading.Event(), []

    def keep_holding(worker: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                application.hold(f"new-{worker}-{number}", 600)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=keep_holding, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    tamper(database_path, "DELETE FROM alarms", "UPDATE reservations SET version = 0")
    report = rebuild(application.writer, application.mapper)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert report.mended >= 600
    assert verified(database_path).found == 0


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_an_exported_and_imported_log_has_the_same_digest(
    log: Path, tmp_path: Path, name: str
) -> None:
    exported, target = tmp_path / name, tmp_path / "copy.db"
    assert exported_from(log, exported) == 9
    report = import_log(str(exported), target)
    assert report.digest == Queries(Database(log)).digest()
    assert verified(target).found == 0
    prepare(target)  # fit to serve


def edited(path: Path, line: int, change: dict) -> None:
    lines = path.read_bytes().splitlines()
    lines[line] = json.dumps({**json.loads(lines[line]), **change}).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")


BAD_FILES = {
    "an unknown topic": (lambda path: edited(path, 3, {"topic": "os:system"}), "line 4"),
    "a gap": (lambda path: edited(path, 3, {"position": 4}), "line 4 has position 4, not 3"),
    "an altered time": (lambda path: edited(path, 5, {"recordedAt": 1}), "line 6 .* checksum"),
    "an id not ours": (lambda path: edited(path, 5, {"id": "x"}), "line 6 has 'x'"),
    "a state that is no event": (lambda path: edited(path, 2, {"state": "{}"}), "line 3"),
    "another format": (lambda path: edited(path, 0, {"format": "x"}), "line 1 says x"),
    "a newer format": (lambda path: edited(path, 0, {"version": 2}), "line 1 says .* version 2"),
    "an end too soon": (
        lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-1])),
        "ends after 8 events",
    ),
    "half a line": (lambda path: path.write_bytes(path.read_bytes()[:-40]), "line 10"),
    "nothing": (lambda path: path.write_bytes(b""), "line 1"),
    "not JSON": (lambda path: path.write_bytes(b"hello\n"), "line 1"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_import_refuses_and_changes_nothing_for(kind: str, log: Path, tmp_path: Path) -> None:
    spoil, message = BAD_FILES[kind]
    exported, target = tmp_path / "log.jsonl", tmp_path / "copies" / "copy.db"
    target.parent.mkdir()
    exported_from(log, exported)
    spoil(exported)
    with pytest.raises(ImportRefused, match=message):
        import_log(str(exported), target)
    assert list(target.parent.iterdir()) == []


def test_import_refuses_half_a_gzip_file(log: Path, tmp_path: Path) -> None:
    exported = tmp_path / "log.jsonl.gz"
    exported_from(log, exported)
    exported.write_bytes(exported.read_bytes()[:-20])
    with pytest.raises(ImportRefused, match="gzip"):
        import_log(str(exported), tmp_path / "copy.db")
    with gzip.open(exported, "wb") as file:
        file.write(b"hello")
    with pytest.raises(ImportRefused, match="line 1"):
        import_log(str(exported), tmp_path / "copy.db")


def test_import_refuses_to_replace_a_log(log: Path, tmp_path: Path) -> None:
    exported = tmp_path / "log.jsonl"
    exported_from(log, exported)
    with pytest.raises(ImportRefused, match="holds events already"):
        import_log(str(exported), log)
    assert verified(log).found == 0


def test_a_backup_of_a_served_database_verifies_and_restores(
    application: ReservationApplication, database_path: Path, tmp_path: Path
) -> None:
    application.hold("seat-1", 600)
    report = backup(database_path, tmp_path / "backup.db")
    application.hold("seat-2", 600)
    application.stop()
    restored = restore(tmp_path / "backup.db", database_path)
    assert restored.digest == report.digest
    assert Queries(Database(database_path)).reservation("seat-2") is None
    assert verified(database_path).found == 0


def test_restore_refuses_while_the_database_is_in_use(
    application: ReservationApplication, database_path: Path, tmp_path: Path
) -> None:
    application.hold("seat-1", 600)
    backup(database_path, tmp_path / "backup.db")
    with pytest.raises(DatabaseInUse, match="is in use"):
        restore(tmp_path / "backup.db", database_path)
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
    assert Queries(Database(tmp_path / "backup.db")).reservation("seat-9") is not None


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
    assert Queries(Database(target)).head() == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_restore_refuses_a_backup_that_does_not_verify(log: Path, tmp_path: Path) -> None:
    backup(log, tmp_path / "backup.db")
    tamper(tmp_path / "backup.db", DAMAGE["a foreign topic"][0])
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


def test_diff_tells_what_began_moved_and_ended(log: Path) -> None:
    start = 1_800_000_000_000
    queries = Queries(Database(log))
    changes = [(c.what, c.name) for c in diff(queries, EventMapper(), start - 1, start + 10_000)]
    assert changes == [
        ("began", "seat-1"),
        ("began", "seat-2"),
        ("moved", "seat-2"),
        ("began", "seat-3"),
        ("ended", "seat-3"),
    ]
    later = diff(queries, EventMapper(), start, start + 10_000)
    assert next((c.what, c.name) for c in later) == ("moved", "seat-2")


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


def test_a_log_without_its_head_is_refused_with_a_sentence(log: Path) -> None:
    tamper(log, "DELETE FROM log_head")
    with pytest.raises(DamagedLog, match="has lost its head"):
        prepare(log)
