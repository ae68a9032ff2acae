"""The SQLite store passes the suite of every store, and what only a file can meet."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import (
    DamagedLog,
    DatabaseNotWritable,
    DatabaseRefused,
    ForeignDatabase,
    NewerSchema,
    StoreBusy,
    StoreStopped,
)
from reservation_expiry.infrastructure.startup import check, prepare
from reservation_expiry.infrastructure.stores.sqlite.database import Database
from reservation_expiry.infrastructure.stores.sqlite.schema import (
    APPLICATION_ID,
    MIGRATIONS,
    migrate,
    schema_version,
)
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession
from reservation_expiry.infrastructure.stores.sqlite.store import SqliteStore
from tests.infrastructure.store_conformance import (
    OpenSession,
    StoreConformance,
    append,
    positions,
    seat,
)
from tests.infrastructure.whole_store_conformance import WholeStoreConformance
from tests.support.clock import ManualClock
from tests.support.invariants import check_invariants


class TestSqliteSession(StoreConformance):
    @pytest.fixture
    def open_session(self, database_path: Path) -> Iterator[OpenSession]:
        database = Database(database_path)
        opened: list[SqliteSession] = []

        def open_one() -> SqliteSession:
            opened.append(SqliteSession(database))
            return opened[-1]

        yield open_one
        for session in opened:
            session.close()
        database.close()


class TestSqliteStore(WholeStoreConformance):
    @pytest.fixture
    def empty_store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        store = SqliteStore(tmp_path / "new" / "reservations.db")
        yield store
        store.close()

    def test_it_is_a_file_and_can_be_copied(self, database_path: Path, tmp_path: Path) -> None:
        store = SqliteStore(database_path)
        store.as_file().copy_to(tmp_path / "copy.db")
        assert store.as_file().path == database_path
        assert schema_version(Database(tmp_path / "copy.db")) == store.newest_schema
        store.close()


def run(path: Path, *statements: str) -> list[tuple]:
    """Runs them behind the product's back. The rows of the last one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


def opened(path: Path, clock: ManualClock) -> ReservationApplication:
    application = ReservationApplication(path, clock)
    application.start(alarms=False)
    return application


# Transactions on one file


def test_a_second_transaction_on_the_file_is_told_that_it_is_busy(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.sqlite.session.BUSY_TIMEOUT_MS", 0
    )
    database = Database(database_path)
    ours, theirs = SqliteSession(database), SqliteSession(database)
    ours.begin()
    with pytest.raises(StoreBusy):
        theirs.begin()
    ours.commit()
    theirs.begin()
    theirs.close()
    ours.close()


def test_a_statement_outside_a_transaction_of_a_closed_session_is_refused(
    database_path: Path,
) -> None:
    session = SqliteSession(Database(database_path))
    with pytest.raises(StoreStopped):
        session.head()


def test_commits_are_written_ahead_and_reach_the_disk_before_they_return(
    database_path: Path,
) -> None:
    with closing(Database(database_path).connect()) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_reader_cannot_write(database_path: Path) -> None:
    with (
        closing(Database(database_path).connect(read_only=True)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM events")


# Positions, for ever


def test_positions_are_not_used_again_after_the_tail_was_deleted_and_the_file_vacuumed(
    database_path: Path,
) -> None:
    session = SqliteSession(Database(database_path))
    append(session, *((seat(number), 1) for number in range(1, 6)))
    session.close()
    run(database_path, "DELETE FROM events WHERE position > 3", "VACUUM")
    append(session, (seat(9), 1))
    assert positions(session) == [1, 2, 3, 6]
    session.close()


def test_a_row_that_somebody_inserts_by_hand_gets_no_used_position_either(
    database_path: Path,
) -> None:
    session = SqliteSession(Database(database_path))
    append(session, *((seat(number), 1) for number in range(1, 6)))
    session.close()
    ((position,),) = run(
        database_path,
        "DELETE FROM events WHERE position > 3",
        "VACUUM",
        "INSERT INTO events VALUES (NULL, 'reservation/x', 1, 't', x'', 0, x'') RETURNING position",
    )
    assert position == 6


# F23: the newest events cut off


@pytest.mark.parametrize(
    ("kept", "missing"),
    [(3, "event 4 is missing"), (2, "events 3 to 4"), (0, "events 1 to 4")],
)
def test_a_cut_off_tail_is_refused_at_the_start_and_the_positions_are_named(
    kept: int, missing: str, database_path: Path, clock: ManualClock
) -> None:
    application = opened(database_path, clock)
    application.hold("seat-1", 60)
    application.hold("seat-2", 60)
    application.stop()
    run(database_path, f"DELETE FROM events WHERE position > {kept}")
    for start in (prepare, check):
        with pytest.raises(DamagedLog, match=f"ends at position {kept}, .*{missing}"):
            start(database_path)


def test_events_behind_the_head_are_refused_at_the_start(
    database_path: Path, clock: ManualClock
) -> None:
    application = opened(database_path, clock)
    application.hold("seat-1", 60)
    application.stop()
    run(database_path, "UPDATE log_head SET position = 1")
    with pytest.raises(DamagedLog, match="events up to position 2, but only 1 were committed"):
        prepare(database_path)


# Files that are not ours, or not yet, or no longer


def text_file(path: Path) -> None:
    path.write_text("to do: buy milk\n" * 100)


def short_text_file(path: Path) -> None:
    path.write_text("milk")


def other_database(path: Path) -> None:
    run(path, "CREATE TABLE milk (litres)", "INSERT INTO milk VALUES (1)")


def database_of_another_application(path: Path) -> None:
    run(path, "PRAGMA application_id = 42")


FOREIGN = [text_file, short_text_file, other_database, database_of_another_application]


@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
def test_a_foreign_file_is_refused_and_left_as_it_was(make, tmp_path: Path) -> None:
    path = tmp_path / "reservations.db"
    make(path)
    before = path.read_bytes()
    for start in (prepare, check):
        with pytest.raises(ForeignDatabase, match=str(path)):
            start(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_newer_schema_is_refused_and_left_as_it_was(database_path: Path) -> None:
    run(database_path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = schema(database_path)
    for start in (prepare, check):
        with pytest.raises(NewerSchema, match=f"has schema {len(MIGRATIONS) + 1}"):
            start(database_path)
    assert schema(database_path) == before


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "reservations.db"
    path.touch()
    prepare(path)
    assert schema_version(Database(path)) == len(MIGRATIONS)


def test_a_database_is_made_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "reservations.db"
    prepare(path)
    assert run(path, "PRAGMA application_id") == [(APPLICATION_ID,)]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseNotWritable, match="cannot be made"):
        prepare(tmp_path / "file" / "reservations.db")


def test_a_folder_in_place_of_the_file_is_told(tmp_path: Path) -> None:
    for start in (prepare, check):
        with pytest.raises(DatabaseRefused, match="is a folder"):
            start(tmp_path)


# Migrations


def schema(path: Path) -> tuple[list, list]:
    return run(path, "SELECT name, sql FROM sqlite_schema ORDER BY name"), run(
        path, "PRAGMA user_version"
    )


ADD_NOTE = (
    "ALTER TABLE reservations ADD COLUMN note TEXT; CREATE INDEX notes ON reservations (note)"
)
BREAK = "CREATE TABLE half (done); INSERT INTO half VALUES (1); CREATE TABLE half (again)"


def test_an_older_schema_is_migrated_and_keeps_its_data(
    database_path: Path, clock: ManualClock
) -> None:
    application = opened(database_path, clock)
    application.hold("seat-1", 60)
    application.stop()
    migrate(Database(database_path), migrations=(*MIGRATIONS, ADD_NOTE))
    assert run(database_path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]
    assert run(database_path, "SELECT name, note FROM reservations") == [("seat-1", None)]
    check_invariants(database_path)


def test_a_new_file_is_made_by_all_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "reservations.db"
    migrate(Database(path), migrations=(*MIGRATIONS, ADD_NOTE))
    assert run(path, "SELECT note FROM reservations") == []


def test_migrating_what_is_up_to_date_changes_nothing(database_path: Path) -> None:
    before = schema(database_path)
    migrate(Database(database_path))
    assert schema(database_path) == before


@pytest.mark.parametrize(
    "steps", [(BREAK,), (ADD_NOTE, BREAK)], ids=["the step", "a step after another"]
)
def test_a_migration_that_fails_leaves_the_file_as_it_was(
    steps: tuple[str, ...], database_path: Path, clock: ManualClock
) -> None:
    application = opened(database_path, clock)
    application.hold("seat-1", 60)
    application.stop()
    before = schema(database_path)
    with pytest.raises(DatabaseNotWritable, match="half"):
        migrate(Database(database_path), migrations=(*MIGRATIONS, *steps))
    assert schema(database_path) == before
    prepare(database_path)
    check_invariants(database_path)


def test_a_first_migration_that_fails_leaves_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "reservations.db"
    with pytest.raises(DatabaseNotWritable, match="half"):
        migrate(Database(path), migrations=(*MIGRATIONS, BREAK))
    assert schema(path) == ([], [(0,)])
    prepare(path)


# Projections that have gone


@pytest.mark.parametrize("table", ["alarms", "reservations"])
@pytest.mark.parametrize("loss", ["DELETE FROM", "DROP TABLE"])
def test_a_lost_projection_is_made_anew_from_the_log_at_the_start(
    table: str, loss: str, database_path: Path, clock: ManualClock
) -> None:
    application = opened(database_path, clock)
    application.hold("seat-1", 60)
    application.stop()
    run(database_path, f"{loss} {table}")
    assert prepare(database_path).repaired == 1
    check_invariants(database_path)


@pytest.mark.parametrize("loss", ["DELETE FROM", "DROP TABLE"])
def test_both_projections_lost_are_made_anew_from_the_log_at_the_start(
    loss: str, database_path: Path, clock: ManualClock
) -> None:
    application = opened(database_path, clock)
    application.hold("seat-1", 60)
    application.stop()
    run(database_path, f"{loss} alarms", f"{loss} reservations")
    prepare(database_path)
    check_invariants(database_path)
