"""Verify, rebuild, export, import, backup, restore: each fault found, each repaired."""

import gzip
import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import DamagedLog, ImportRefused, StoreUnavailable
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay import parallel
from reservation_expiry.infrastructure.replay import verify as verify_module
from reservation_expiry.infrastructure.replay.backup import import_log
from reservation_expiry.infrastructure.replay.diff import diff
from reservation_expiry.infrastructure.replay.parallel import verify_with_all_cores
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.replay.transfer import export_log
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.logs import FOREIGN_TOPIC, hexed, verified


def exported_from(address: Address, target: Path) -> int:
    database = open_store(address)
    try:
        return export_log(database, str(target))
    finally:
        database.close()


def tamper(address: Address, *statements: str) -> None:
    for statement in statements:
        sql(address, statement)


def test_an_untouched_database_verifies(log: Address) -> None:
    report = verified(log)
    assert (report.events, report.aggregates, report.found) == (9, 3, 0)


MOVED = b'{"v":1,"scheduled_time":7}'
# F23: each kind of damage, and the position that the report must name.
DAMAGE = {
    "an altered event that a later one superseded": (
        "UPDATE events SET state = (SELECT state FROM events WHERE position = 5)"
        " WHERE position = 3",
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
        f"UPDATE alarms SET job_state = {hexed(MOVED)} WHERE id = 'reservation/seat-1'",
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
        "INSERT INTO reservations VALUES ('zzz', 1, 'held', 1, 2, NULL, 0, 2, NULL, NULL, NULL)",
        None,
        "the log does not",
    ),
    "a foreign topic": (FOREIGN_TOPIC, 1, "os:system"),
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
def test_verify_finds_and_names_the_position_of(kind: str, log: Address) -> None:
    statement, position, problem = DAMAGE[kind]
    tamper(log, statement)
    report = verified(log)
    assert any(d.position == position and problem in d.problem for d in report.differences), report


@pytest.mark.parametrize("events", [1, 2, 4])
@pytest.mark.parametrize("kind", DAMAGE)
def test_verify_in_parts_finds_what_verify_at_once_finds(
    kind: str, events: int, log: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts so small that damage lies in, before and behind a part's bounds."""
    tamper(log, DAMAGE[kind][0])
    at_once = verified(log)
    monkeypatch.setattr(verify_module, "PART_EVENTS", events)
    in_parts = verified(log)
    assert in_parts == at_once


def test_verify_with_two_processes_finds_what_one_finds(log: Address) -> None:
    tamper(log, *(DAMAGE[kind][0] for kind in ("a deleted alarm", "an altered time of recording")))
    read: list[int] = []
    database = open_store(log)
    report = verify_with_all_cores(database, read.append, processes=2)
    database.close()
    assert report == verified(log)
    assert report.found == 2
    assert sum(read) == 2 * 9


def test_a_verifying_process_that_is_killed_is_told_of(
    log: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_verify_in_worker", die)
    database = open_store(log)
    with pytest.raises(StoreUnavailable, match="was killed"):
        verify_with_all_cores(database, processes=2)
    database.close()


def die(address: Address, part: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_verify_finds_an_expiry_that_the_rules_would_not_have_decided(log: Address) -> None:
    tamper(
        log,
        "UPDATE events SET state = x'7b22657870697265645f61745f6d73223a317d' "
        "WHERE topic = 'reservation.Expired'",
    )
    assert any("Expired at 1, before" in d.problem for d in verified(log).differences)


def repair(address: Address) -> int:
    application = ReservationApplication(address)
    application.start(alarms=False)
    try:
        return rebuild(application.writer.execute, application.mapper).repaired
    finally:
        application.stop()


PROJECTION_DAMAGE = [kind for kind in DAMAGE if "alarm" in kind or "read-model" in kind]


@pytest.mark.parametrize("kind", PROJECTION_DAMAGE)
def test_rebuild_mends(kind: str, log: Address) -> None:
    tamper(log, DAMAGE[kind][0])
    assert repair(log) == 1
    assert verified(log).found == 0


def test_rebuild_of_a_healthy_database_writes_nothing(
    log: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_class = type(open_store(log).session())
    written: list[str] = []
    run = session_class._run
    monkeypatch.setattr(
        session_class, "_run", lambda self, *args: [written.append(args[0]), run(self, *args)][1]
    )
    assert repair(log) == 0
    assert not [s for s in written if " alarms " in s or " reservations " in s or "events" in s]


def test_rebuild_keeps_what_an_alarm_has_been_through(log: Address) -> None:
    state = b'{"v":1,"scheduled_time":1800000060000,"attempts":3}'
    where = "WHERE id = 'reservation/seat-1'"
    sql(log, f"UPDATE alarms SET next_run_time = NULL, job_state = ? {where}", state)
    assert repair(log) == 0
    assert sql(log, f"SELECT * FROM alarms {where}") == [("reservation/seat-1", None, state)]


def test_rebuild_beside_a_busy_application_fails_no_command(
    application: ReservationApplication, address: Address
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
    tamper(address, "DELETE FROM alarms", "UPDATE reservations SET version = 0")
    report = rebuild(application.writer.execute, application.mapper)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert report.repaired >= 600
    assert verified(address).found == 0


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_an_exported_and_imported_log_has_the_same_digest(
    log: Address, tmp_path: Path, name: str, new_address: Callable[[], Address]
) -> None:
    exported, target = tmp_path / name, new_address()
    assert exported_from(log, exported) == 9
    report = import_log(str(exported), target)
    with closing(open_store(log)) as store:
        assert report.digest == Queries(store).digest()
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
def test_import_refuses_and_changes_nothing_for(kind: str, log: Address, tmp_path: Path) -> None:
    spoil, message = BAD_FILES[kind]
    exported, target = tmp_path / "log.jsonl", tmp_path / "copies" / "copy.db"
    target.parent.mkdir()
    exported_from(log, exported)
    spoil(exported)
    with pytest.raises(ImportRefused, match=message):
        import_log(str(exported), target)
    assert list(target.parent.iterdir()) == []


def test_import_refuses_half_a_gzip_file(log: Address, tmp_path: Path) -> None:
    exported = tmp_path / "log.jsonl.gz"
    exported_from(log, exported)
    exported.write_bytes(exported.read_bytes()[:-20])
    with pytest.raises(ImportRefused, match="gzip"):
        import_log(str(exported), tmp_path / "copy.db")
    with gzip.open(exported, "wb") as file:
        file.write(b"hello")
    with pytest.raises(ImportRefused, match="line 1"):
        import_log(str(exported), tmp_path / "copy.db")


def test_import_refuses_to_replace_a_log(log: Address, tmp_path: Path) -> None:
    exported = tmp_path / "log.jsonl"
    exported_from(log, exported)
    with pytest.raises(ImportRefused, match="holds events already"):
        import_log(str(exported), log)
    assert verified(log).found == 0


def test_diff_tells_what_began_moved_and_ended(log: Address) -> None:
    start = 1_800_000_000_000
    with closing(open_store(log)) as store:
        queries = Queries(store)
        found = list(diff(queries, EventMapper(), start - 1, start + 10_000))
        later = next(diff(queries, EventMapper(), start, start + 10_000))
    assert [(c.what, c.name) for c in found] == [
        ("began", "seat-1"),
        ("began", "seat-2"),
        ("moved", "seat-2"),
        ("began", "seat-3"),
        ("ended", "seat-3"),
    ]
    assert (later.what, later.name) == ("moved", "seat-2")


def test_f89_diff_tells_the_end_of_a_hold_that_was_held_anew_when_it_was_overdue(
    application: ReservationApplication, clock: ManualClock, address: Address
) -> None:
    application.hold("seat-1", 60)
    clock.advance(60_000)
    held = application.hold("seat-1", 60)
    assert (held.status, held.expiration_count, held.version) == ("held", 0, 5)
    with closing(open_store(address)) as store:
        changes = [c.what for c in diff(Queries(store), EventMapper(), 0, clock.now_ms())]
    assert changes == ["began", "ended", "began"]
    assert verified(address).found == 0


def test_a_log_without_its_head_is_refused_with_a_sentence(log: Address) -> None:
    tamper(log, "DELETE FROM log_head")
    with pytest.raises(DamagedLog, match="has lost its head"):
        prepare(log)
