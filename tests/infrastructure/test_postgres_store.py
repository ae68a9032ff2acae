"""The PostgreSQL store: the suite of every store, and what only a server can meet."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from reservation_expiry.infrastructure import writer as writer_module
from reservation_expiry.infrastructure.alarms.claims import RESERVATIONS
from reservation_expiry.infrastructure.alarms.dispatcher import LEASE_MS
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import (
    DatabaseNotWritable,
    DatabaseRefused,
    ForeignDatabase,
    NewerSchema,
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    VersionConflict,
)
from reservation_expiry.infrastructure.startup import check, prepare
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from reservation_expiry.infrastructure.stores.postgres import session as session_module
from reservation_expiry.infrastructure.stores.postgres.database import LIMITS, translate
from reservation_expiry.infrastructure.stores.postgres.reader_pool import ReaderPool
from reservation_expiry.infrastructure.stores.postgres.schema import MIGRATIONS, migrate
from reservation_expiry.infrastructure.stores.postgres.session import PostgresSession
from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from tests.infrastructure.store_conformance import (
    NOW_MS,
    OpenSession,
    StoreConformance,
    append,
    event_rows,
    positions,
    seat,
)
from tests.infrastructure.whole_store_conformance import WholeStoreConformance
from tests.support.database import locked, sql
from tests.support.invariants import check_invariants
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy


@pytest.fixture
def empty(postgres: PostgresServer) -> PostgresAddress:
    """A schema with nothing in it."""
    return postgres.address("alone")


@pytest.fixture
def address(empty: PostgresAddress) -> PostgresAddress:
    prepare(empty)
    return empty


@pytest.fixture
def open_session(address: PostgresAddress) -> Iterator[OpenSession]:
    store = PostgresStore(address)
    opened: list[PostgresSession] = []

    def open_one() -> PostgresSession:
        opened.append(store.session())
        return opened[-1]

    yield open_one
    for session in opened:
        session.close()
    store.close()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def application(
    address: PostgresAddress, postgres: PostgresServer, proxy: Proxy
) -> Iterator[ReservationApplication]:
    """One that reaches the server through a proxy, by the clocks of both."""
    through = PostgresAddress(address.url.replace(f":{postgres.port}/", f":{proxy.port}/"))
    application = ReservationApplication(through)
    application.start(alarms=False)
    yield application
    application.stop()


class TestPostgresSession(StoreConformance):
    @pytest.fixture
    def open_session(self, open_session: OpenSession) -> OpenSession:
        return open_session


# The order of the log, and whoever stands in its way


class TestPostgresStore(WholeStoreConformance):
    @pytest.fixture
    def empty_store(self, empty: PostgresAddress) -> Iterator[PostgresStore]:
        store = PostgresStore(empty)
        yield store
        store.close()

    def test_it_is_no_file_and_says_what_to_do_instead(self, empty_store: PostgresStore) -> None:
        with pytest.raises(DatabaseRefused, match="pg_dump or pg_basebackup"):
            empty_store.as_file()


def test_f18_a_reader_never_skips_the_event_of_a_writer_that_pauses_before_its_commit(
    address: PostgresAddress, open_session: OpenSession
) -> None:
    slow, fast = open_session(), open_session()
    slow.begin()
    slow.append(event_rows(slow, (seat(1), 1)))
    done = threading.Event()
    thread = threading.Thread(target=lambda: [append(fast, (seat(2), 1)), done.set()])
    thread.start()
    store = PostgresStore(address)
    for _ in range(10):
        assert store.all("SELECT position FROM events") == []
        time.sleep(0.02)
    assert not done.is_set()
    slow.commit()
    thread.join()
    rows = store.all("SELECT position, originator_id FROM events ORDER BY position")
    assert rows == [(1, seat(1)), (2, seat(2))]
    store.close()


def test_a_lock_that_is_not_had_in_time_is_an_error_that_says_so(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "lock_timeout", 50)
    first, second = open_session(), open_session()
    first.begin()
    with pytest.raises(StoreBusy, match="another node holds the log's lock"):
        second.begin()
    second.rollback()
    first.rollback()
    second.begin()


def test_claims_do_not_wait_for_whoever_appends_nor_for_each_other(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "lock_timeout", 50)
    appending, one, other = open_session(), open_session(), open_session()
    appending.begin()
    appending.put_alarms([(seat(n), float(n), b"a") for n in range(4)])
    appending.commit()
    appending.begin()
    appending.append(event_rows(appending, (seat(1), 1)))
    one.begin(appends=False)
    other.begin(appends=False)
    assert [row[0] for row in one.due_alarms(NOW_MS, 2, RESERVATIONS)] == [seat(0), seat(1)]
    assert [row[0] for row in other.due_alarms(NOW_MS, 9, RESERVATIONS)] == [seat(2), seat(3)]


def test_a_node_that_is_frozen_inside_a_transaction_loses_it_and_holds_nobody_up(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "idle_in_transaction_session_timeout", 200)
    frozen, other = open_session(), open_session()
    frozen.begin()
    frozen.append(event_rows(frozen, (seat(1), 1)))
    began = time.monotonic()
    append(other, (seat(2), 1))
    assert 0.1 < time.monotonic() - began < 2
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        frozen.commit()
    append(frozen, (seat(3), 1))
    assert positions(other) == [1, 2]


def test_the_limits_of_every_wait_come_before_the_end_of_a_lease() -> None:
    frozen, waiting = (LIMITS[f"{n}_timeout"] for n in ("idle_in_transaction_session", "lock"))
    assert 0 < frozen < waiting < LEASE_MS
    assert LIMITS["statement_timeout"] > 0


# A commit whose answer was lost


def test_a_commit_whose_answer_was_lost_is_found_to_be_carried_out(
    application: ReservationApplication, address: PostgresAddress, proxy: Proxy
) -> None:
    application.hold("seat-1", 60)
    proxy.cut_after(b"COMMIT\0")
    state = application.hold("seat-1", 60)
    assert proxy.cuts == 1
    assert state == application.get("seat-1")
    assert application.hold("seat-2", 60).status == "held"
    assert check_invariants(address).counts()["Held"] == 3


def test_a_commit_that_never_arrived_is_found_to_be_undone(
    application: ReservationApplication,
    address: PostgresAddress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application.hold("seat-1", 60)
    commit, lost = PostgresSession.commit, []

    def lose_it(session: PostgresSession) -> None:
        if not lost:
            lost.append(session)
            session._connection.pgconn.finish()
        commit(session)

    monkeypatch.setattr(PostgresSession, "commit", lose_it)
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        application.hold("seat-1", 60)
    assert application.hold("seat-2", 60).status == "held"
    assert check_invariants(address).counts()["Held"] == 2


def test_a_commit_that_nobody_can_be_asked_about_has_an_outcome_that_is_unknown(
    application: ReservationApplication,
    address: PostgresAddress,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "ASK_OUTCOME_SECONDS", 0.2)
    application.hold("seat-1", 60)
    proxy.refusing = True
    proxy.cut_after(b"COMMIT\0")
    with pytest.raises(OutcomeUnknown, match="cannot be found out: "):
        application.hold("seat-1", 60)
    assert isinstance(application.writer.last_error, OutcomeUnknown)
    proxy.refusing = False
    assert application.hold("seat-2", 60).status == "held"
    check_invariants(address)


def test_a_commit_that_the_server_has_not_read_yet_is_waited_for(
    open_session: OpenSession,
) -> None:
    """The backend stands still with the commit in its socket, and we lose the connection."""
    session = open_session()
    session.begin()
    session.append(event_rows(session, (seat(1), 1)))
    backend = session._connection.info.backend_pid
    session._connection.answer_seconds = 0.2
    os.kill(backend, signal.SIGSTOP)
    threading.Timer(1.5, os.kill, (backend, signal.SIGCONT)).start()
    began = time.monotonic()
    session.commit()
    assert time.monotonic() - began > 1.4
    assert positions(session) == [1]


def test_a_writer_whose_row_is_gone_takes_another_before_it_writes(
    address: PostgresAddress, open_session: OpenSession
) -> None:
    session = open_session()
    append(session, (seat(1), 1))
    sql(address, "DELETE FROM writers")
    append(session, (seat(1), 2))
    assert sql(address, "SELECT batch FROM writers") == [(2,)]
    assert positions(session) == [1, 2]


def test_rows_of_writers_are_swept_a_day_after_their_last_transaction(
    address: PostgresAddress, open_session: OpenSession
) -> None:
    old, working = open_session(), open_session()
    append(old, (seat(1), 1))
    append(working, (seat(1), 2))
    sql(address, "UPDATE writers SET since_ms = since_ms - 90000000")
    append(working, (seat(1), 3))
    prepare(address)
    assert sql(address, "SELECT token FROM writers") == [(working._token,)]


def test_a_caller_is_answered_in_time_whatever_becomes_of_its_transaction(
    application: ReservationApplication,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_module, "WAIT_LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(writer_module, "OUTCOME_LIMIT_SECONDS", 0.2)
    application.hold("seat-1", 60)
    still = pytest.raises(OutcomeUnknown, match="still under way")
    with locked(postgres_address(postgres)), still:
        application.hold("seat-1", 60)
    assert application.get("seat-1").status == "held"


def postgres_address(postgres: PostgresServer) -> PostgresAddress:
    """Of the database that the fixtures here share."""
    return PostgresAddress(postgres.url("alone"))


def test_a_statement_that_fails_fails_its_own_command_alone(
    application: ReservationApplication,
) -> None:
    class Bad(Work):
        def run(self, unit: UnitOfWork) -> None:
            unit.session._run("SELECT 1 / 0")

    class Hindrance(Work):
        """What comes meanwhile goes into one transaction."""

        def run(self, unit: UnitOfWork) -> None:
            time.sleep(0.3)

    application.hold("seat-1", 60)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(application.writer.execute, Hindrance())
        time.sleep(0.1)
        bad = pool.submit(application.writer.execute, Bad())
        held = pool.submit(application.hold, "seat-2", 60)
    assert "division by zero" in str(bad.exception())
    assert held.result().status == "held"


def test_a_claim_after_trouble_waits_for_no_one_either(
    application: ReservationApplication, postgres: PostgresServer
) -> None:
    application.hold("seat-1", 60)
    application.writer.last_error = StoreBusy("before")
    with locked(postgres_address(postgres)):
        began = time.monotonic()
        assert application.alarm_dispatcher.claim() == []
        assert time.monotonic() - began < 1
    assert application.writer.last_error is None


# Connections that go


def test_reads_and_writes_go_on_after_every_connection_was_cut(
    application: ReservationApplication, postgres: PostgresServer, proxy: Proxy
) -> None:
    application.hold("seat-1", 60)
    with ThreadPoolExecutor(8) as pool:  # so that there are several readers
        list(pool.map(lambda _: application.get("seat-1"), range(50)))
    for _ in range(3):
        proxy.cut()
        assert application.get("seat-1").status == "held"
        assert application.hold("seat-1", 60).status == "held"


def test_a_database_that_is_away_is_told_of_in_time_and_comes_back(
    application: ReservationApplication, proxy: Proxy
) -> None:
    application.hold("seat-1", 60)
    application.get("seat-1")
    proxy.refusing = True
    proxy.cut()
    for ask in (lambda: application.get("seat-1"), lambda: application.hold("seat-1", 60)):
        began = time.monotonic()
        with pytest.raises((StoreUnavailable, StoreBusy)):
            ask()
        assert time.monotonic() - began < 5
    proxy.refusing = False
    deadline = time.monotonic() + 5
    while True:
        try:
            assert application.get("seat-1").status == "held"
            assert application.hold("seat-1", 60).status == "held"
            return
        except (StoreUnavailable, StoreBusy):
            assert time.monotonic() < deadline
        time.sleep(0.05)


ERRORS = {
    "a statement that takes too long": ("SELECT pg_sleep(5)", StoreBusy),
    "a version that is there": (
        "INSERT INTO events SELECT 99, originator_id, originator_version, topic, state, 0, ''"
        " FROM events",
        VersionConflict,
    ),
    "a table that is gone": ("SELECT 1 FROM nowhere", StoreUnavailable),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_the_drivers_error_is_translated_for(
    kind: str, open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, error_class = ERRORS[kind]
    monkeypatch.setitem(LIMITS, "statement_timeout", 100)
    session = open_session()
    append(session, (seat(1), 1))
    session.begin()
    with pytest.raises(error_class) as raised:
        session._run(statement)
    assert isinstance(raised.value.__cause__, psycopg.Error)


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (psycopg.errors.DeadlockDetected(), StoreBusy),
        (psycopg.errors.SerializationFailure(), StoreBusy),
        (psycopg.errors.DiskFull(), StoreFull),
        (psycopg.errors.AdminShutdown(), StoreUnavailable),
        (psycopg.errors.ReadOnlySqlTransaction(), StoreUnavailable),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_an_error_that_is_hard_to_bring_about_is_translated(error: Any, ours: type) -> None:
    assert type(translate(error)) is ours


# The clock


def test_a_transactions_time_is_the_databases(
    application: ReservationApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    right_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.clock.time.time_ns", lambda: (right_ms - 600_000) * 10**6
    )
    state = application.hold("seat-1", 60)
    assert abs(state.created_at_ms - right_ms) < 5_000
    assert abs(application.clock.now_ms() - right_ms) < 5_000


# Hearing of alarms


def test_a_watch_hears_of_alarms_due_soon_and_of_no_others(
    address: PostgresAddress, open_session: OpenSession
) -> None:
    heard: list[int] = []
    store = PostgresStore(address)
    watch = store.watch(heard.append)
    watch.start()
    session = open_session()
    session.begin()
    now_ms = session._database.clock.now_ms()
    session.put_alarms([(seat(1), (now_ms + 60_000) / 1000, b"a")])
    session.commit()
    time.sleep(0.3)
    for number, due_ms in enumerate((now_ms + 300, now_ms + 100)):
        session.begin()
        session.put_alarms([(seat(number), due_ms / 1000, b"a")])
        session.commit()
    deadline = time.monotonic() + 5
    while len(heard) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == [now_ms + 300, now_ms + 100]
    watch.stop()
    watch.stop()
    store.close()


def test_a_watch_outlives_what_others_say_on_its_channel(
    address: PostgresAddress, open_session: OpenSession
) -> None:
    heard: list[int] = []
    store = PostgresStore(address)
    watch = store.watch(heard.append)
    watch.start()
    time.sleep(0.3)
    for payload in ("x", "", "7"):
        sql(address, f"NOTIFY reservation_alarms, '{payload}'")
    deadline = time.monotonic() + 5
    while len(heard) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == [0, 0, 7]
    watch.stop()
    store.close()


def test_of_several_alarms_that_are_moved_the_soonest_is_told(
    address: PostgresAddress, open_session: OpenSession
) -> None:
    session = open_session()
    session.begin()
    now_ms = session._database.clock.now_ms()
    session.put_alarms([(seat(n), (now_ms + 60_000) / 1000, b"a") for n in range(3)])
    session.head()
    for number, ahead_ms in enumerate((300, 100, 200)):
        session.replace_alarm(b"a", (seat(number), (now_ms + ahead_ms) / 1000, b"b"))
    assert session._soonest_ms == now_ms + 100
    session.commit()


# Connections for reading


def test_who_waits_for_a_connection_gets_the_place_of_one_that_broke(
    address: PostgresAddress,
) -> None:
    store = PostgresStore(address)
    pool = ReaderPool(store.connect, 1)
    taken = pool.take()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(pool.take)
        time.sleep(0.1)
        taken.close()
        pool.give_back(taken)
        fresh = waiting.result(1)
    assert fresh.execute("SELECT 1").fetchone() == (1,)
    pool.give_back(fresh)
    assert pool.take() is fresh
    pool.give_back(fresh)
    pool.close()
    assert fresh.closed


def test_all_connections_in_use_is_an_error_that_says_so(
    address: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.postgres.reader_pool.WAIT_SECONDS", 0.05
    )
    store = PostgresStore(address)
    pool = ReaderPool(store.connect, 1)
    with pool.take(), pytest.raises(StoreBusy, match="in use"):
        pool.take()


def test_a_connection_is_replaced_when_it_is_old(
    address: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one to a server that was failed over from would answer of yesterday for ever."""
    store = PostgresStore(address)
    pool = ReaderPool(store.connect, 1)
    first = pool.take()
    pool.give_back(first)
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.postgres.reader_pool.AGE_SECONDS", 0.0
    )
    with pool.take() as second:
        assert second is not first
        assert first.closed


# The schema


def test_ten_nodes_may_start_at_once_on_an_empty_schema(empty: PostgresAddress) -> None:
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(prepare, [empty] * 10))
    assert check(empty) == "ready"
    assert sql(empty, "SELECT version FROM reservation_expiry_schema") == [(len(MIGRATIONS),)]


def test_a_role_that_owns_its_schema_and_no_more_is_enough(postgres: PostgresServer) -> None:
    postgres.run(
        "DROP SCHEMA IF EXISTS app CASCADE",
        "DROP ROLE IF EXISTS app",
        "CREATE ROLE app LOGIN",
        "CREATE SCHEMA app AUTHORIZATION app",
    )
    address = PostgresAddress(postgres.url(user="app"))
    assert check(address) == "will be created"
    prepare(address)
    application = ReservationApplication(address)
    application.start()
    assert application.hold("seat-1", 60).status == "held"
    application.stop()
    tables = postgres.run("SELECT DISTINCT schemaname FROM pg_tables WHERE tableowner = 'app'")
    assert tables == [("app",)]
    postgres.run("DROP SCHEMA app CASCADE", "DROP ROLE app")


def test_a_role_that_may_make_nothing_is_told_what_it_needs(postgres: PostgresServer) -> None:
    postgres.run("DROP ROLE IF EXISTS nobodys", "CREATE ROLE nobodys LOGIN")
    address = PostgresAddress(postgres.url(user="nobodys"))
    for start in (check, prepare):
        with pytest.raises(DatabaseNotWritable, match="CREATE SCHEMA nobodys AUTHORIZATION"):
            start(address)
    postgres.run("DROP ROLE nobodys")


def test_tables_that_are_not_ours_are_refused_and_left_alone(empty: PostgresAddress) -> None:
    sql(empty, "CREATE TABLE events (what text)")
    with pytest.raises(ForeignDatabase, match="a schema of its own"):
        prepare(empty)
    assert sql(empty, "SELECT count(*) FROM pg_tables WHERE schemaname = 'alone'") == [(1,)]


def test_a_database_that_is_not_in_utf8_is_refused(postgres: PostgresServer) -> None:
    postgres.run(
        "DROP DATABASE IF EXISTS ascii",
        "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    address = PostgresAddress(postgres.url(database="ascii"))
    for start in (check, prepare):
        with pytest.raises(DatabaseRefused, match="is in SQL_ASCII"):
            start(address)


def test_the_server_ends_a_backend_whose_answer_nobody_takes(open_session: OpenSession) -> None:
    """As that of a node that is frozen while it is sent much; the kernel sees to it, so
    that the server was told to is what can be seen."""
    session = open_session()
    session.begin()
    ((told,),) = session._fetch(
        "SELECT setting::int FROM pg_settings WHERE name = ?", ("tcp_user_timeout",)
    )
    assert 0 < told < LEASE_MS


def test_a_newer_schema_is_refused(address: PostgresAddress) -> None:
    sql(address, "UPDATE reservation_expiry_schema SET version = 99")
    for start in (check, prepare):
        with pytest.raises(NewerSchema, match="has schema 99"):
            start(address)


def test_a_migration_that_fails_leaves_everything_as_it_was(address: PostgresAddress) -> None:
    store = PostgresStore(address)
    steps = (*MIGRATIONS, "ALTER TABLE alarms ADD COLUMN note text; SELECT 1 / 0")
    with pytest.raises(StoreError, match="division by zero"):
        migrate(store, steps)
    assert check(address) == "ready"
    migrate(store, (*MIGRATIONS, "ALTER TABLE alarms ADD COLUMN note text"))
    assert sql(address, "SELECT version FROM reservation_expiry_schema") == [(len(MIGRATIONS) + 1,)]
    store.close()


# Secrets


SHOWN = {
    "postgresql://app:s3cret@h1:1,h2:2/db?password=s3cret&sslmode=require": "app@h1:1,h2:2/db",
    "postgresql://app:s3#cret@h/db": "app@h/db",
    "postgresql://app:s3?cret@h/db": "app@h/db",
    "postgresql://app:s3/cret@h/db": "...",
    "postgresql://app:s3[cret@h/db": "app@h/db",
    "postgresql://app:s3cret@[::1/db": "...",
    "postgresql://app:s3%zzcret@h/db": "...",
    "postgresql://h:5432,g:5433/": "h:5432,g:5433/",
}


@pytest.mark.parametrize("url", SHOWN)
def test_an_address_shows_neither_password_nor_options(url: str) -> None:
    address = PostgresAddress(url)
    assert str(address) == f"postgresql://{SHOWN[url]}"
    assert "cret" not in repr(address) + str(address)


def test_a_url_that_is_none_is_refused_without_being_quoted() -> None:
    for url in ("postgresql://app:s3%zzcret@h/db", "postgresql://h/db?nonsense=s3cret"):
        with pytest.raises(DatabaseRefused, match="is not a URL") as refused:
            check(PostgresAddress(url))
        assert "cret" not in str(refused.value)


def test_passwords_and_tls_options_reach_the_driver() -> None:
    url = "postgresql://app:s3cret@h/db?sslmode=verify-full&connect_timeout=9&options=-csearch_path%3Dx"
    parameters = PostgresStore(PostgresAddress(url))._parameters
    assert (parameters["password"], parameters["sslmode"]) == ("s3cret", "verify-full")
    assert parameters["connect_timeout"] == "9"
    assert parameters["options"] == "-csearch_path=x"


def test_a_server_that_stands_still_with_its_connections_open_is_given_up(
    application: ReservationApplication, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.postgres.database.ANSWER_SECONDS", 0.3
    )
    application.hold("seat-1", 60)
    assert application.get("seat-1").status == "held"
    proxy.is_still = True
    for ask in (lambda: application.get("seat-1"), lambda: application.hold("seat-1", 60)):
        began = time.monotonic()
        with pytest.raises((StoreUnavailable, StoreBusy)):
            ask()
        assert time.monotonic() - began < 9
    proxy.is_still = False
    proxy.cut()
    assert application.get("seat-1").status == "held"
    assert application.hold("seat-1", 60).status == "held"


def test_a_claim_reads_no_more_alarms_than_it_takes_whatever_the_planner_knows(
    address: PostgresAddress, open_session: OpenSession
) -> None:
    """Before the server has gathered statistics it would sort all alarms for each claim."""
    session = open_session()
    session.begin()
    session.put_alarms([(seat(number), float(number), b"a") for number in range(5_000)])
    session.commit()
    for _ in range(12):  # until the plan is one for every value
        session.begin()
        assert len(session.due_alarms(NOW_MS, 10, RESERVATIONS)) == 10
        session.commit()
    fetched = session_reads(address, session)
    session.begin()
    session.due_alarms(NOW_MS, 10, RESERVATIONS)
    session.commit()
    assert session_reads(address, session) - fetched < 100


def session_reads(address: PostgresAddress, session: PostgresSession) -> int:
    """How many entries of any index of the alarms, and rows of the table, were read."""
    session._say("SELECT pg_stat_force_next_flush()")
    ((read,),) = sql(
        address,
        "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'alarms'"
        " AND schemaname = current_schema()) + seq_tup_read FROM pg_stat_user_tables"
        " WHERE relname = 'alarms' AND schemaname = current_schema()",
    )
    return int(read)
