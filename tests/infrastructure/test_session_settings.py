"""Whatever a database, a role or the environment sets, a session of ours is as it has to be."""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreError, StoreUnavailable
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore
from tests.infrastructure.test_alarms import Alarms
from tests.support.clock import ManualClock
from tests.support.invariants import check_invariants
from tests.support.postgres import PostgresServer, name_of


@pytest.fixture(scope="module")
def crashing() -> Iterator[PostgresServer]:
    """A server that writes to the disk, and whose log is written as rarely as can be: what is
    not flushed at a commit is lost in a crash."""
    server = PostgresServer(wal_writer_delay="10s")
    try:
        yield server.start()
    finally:
        server.remove()


# The promise itself


@pytest.mark.real_time
@pytest.mark.parametrize("by", ["DATABASE", "ROLE", "options", "PGOPTIONS", "SYSTEM"])
def test_f38_what_was_answered_is_there_after_a_crash_of_the_server(
    by: str,
    crashing: PostgresServer,
    make_database: Callable[..., PostgresAddress],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = make_database(crashing)
    prepare(address)
    address = weaken(crashing, address, by, monkeypatch)
    application = ReservationApplication(address)
    application.start(alarms=False)
    try:
        for number in range(20):
            application.hold(f"seat-{number}", 60)
        crashing.stop(signal.SIGQUIT)  # pg_ctl stop -m immediate
    finally:
        crashing.kill()
        crashing.start()
        application.stop()
        crashing.run("ALTER SYSTEM RESET synchronous_commit", "SELECT pg_reload_conf()")
    monkeypatch.delenv("PGOPTIONS", raising=False)
    assert len(check_invariants(address).events) == 20


def weaken(
    server: PostgresServer,
    address: PostgresAddress,
    by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> PostgresAddress:
    name = name_of(address)
    if by == "options":
        return PostgresAddress(f"{address.url}?options={quote('-csynchronous_commit=off')}")
    if by == "PGOPTIONS":
        monkeypatch.setenv("PGOPTIONS", "-c synchronous_commit=off")
    elif by == "SYSTEM":
        server.run("ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")
    else:
        server.run(f"ALTER {by} {name} SET synchronous_commit = off")
    return address


def setting(application: ReservationApplication, name: str) -> str:
    """Of the writer's own session."""
    session = application._store.session()
    session.begin()
    try:
        return session._fetch("SELECT current_setting(?)", (name,))[0][0]
    finally:
        session.rollback()
        session.close()


@pytest.mark.parametrize(
    ("chosen", "ours"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"),
     ("remote_apply", "remote_apply")],
)  # fmt: skip
def test_f38_a_commit_is_made_no_weaker_and_no_less_strong_than_chosen(
    chosen: str,
    ours: str,
    make_database: Callable[..., PostgresAddress],
    postgres: PostgresServer,
) -> None:
    address = make_database()
    prepare(address)
    postgres.run(f"ALTER DATABASE {name_of(address)} SET synchronous_commit = {chosen}")
    application = ReservationApplication(address)
    try:
        assert setting(application, "synchronous_commit") == ours
    finally:
        application.stop()


def test_f38_a_change_for_all_sessions_reaches_none_of_ours(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    """A reload changes sessions that have not set it themselves, in their midst."""
    address = make_database()
    prepare(address)
    with PostgresStore(address).connect() as connection:
        postgres.run("ALTER SYSTEM SET statement_timeout = 7", "SELECT pg_reload_conf()")
        try:
            connection.execute("SELECT pg_sleep(0.05)")
            assert connection.execute("SHOW statement_timeout").fetchone() == ("6s",)
        finally:
            postgres.run("ALTER SYSTEM RESET statement_timeout", "SELECT pg_reload_conf()")


# Every setting that something of ours depends on

ODD = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "100",
    "lock_timeout": "100",
    "idle_in_transaction_session_timeout": "100",
    "transaction_timeout": "100",
    "row_security": "on",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "array_nulls": "off",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "client_encoding": "LATIN1",
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "client_min_messages": "error",
    "transform_null_equals": "on",
    "enable_seqscan": "off",
    "jit": "on",
}


@pytest.mark.parametrize("by", ["DATABASE", "ROLE", "ROLE IN DATABASE"])
def test_f38_odd_settings_all_at_once_change_nothing(
    by: str,
    make_database: Callable[..., PostgresAddress],
    postgres: PostgresServer,
    clock: ManualClock,
) -> None:
    address = make_database()
    set_all(postgres, address, by, ODD)
    prepare(address)
    works(address, clock)


def test_f38_no_odd_setting_changes_anything_alone(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer, clock: ManualClock
) -> None:
    """Where one of them hides what another does."""
    address = make_database()
    prepare(address)
    for name, value in ODD.items():
        postgres.run(f"ALTER DATABASE {name_of(address)} RESET ALL")
        set_all(postgres, address, "DATABASE", {name: value})
        works(address, clock)


@pytest.mark.real_time
def test_f38_a_session_has_our_limits_and_no_others(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    address = make_database()
    limits = ("statement", "lock", "idle_in_transaction_session", "idle_session", "transaction")
    set_all(postgres, address, "DATABASE", {f"{name}_timeout": "150" for name in limits})
    prepare(address)
    with PostgresStore(address).connect() as connection:
        connection.execute("BEGIN")
        time.sleep(0.2)
        connection.execute("SELECT pg_sleep(0.2)")
        connection.execute("COMMIT")
        time.sleep(0.2)
        assert connection.execute("SHOW lock_timeout").fetchone() == ("4s",)


def set_all(
    server: PostgresServer, address: PostgresAddress, by: str, settings: dict[str, str]
) -> None:
    name = name_of(address)
    whom = f"ROLE {name} IN DATABASE {name}" if by == "ROLE IN DATABASE" else f"{by} {name}"
    for setting, value in settings.items():
        if is_known(server, setting):
            server.run(f"ALTER {whom} SET {setting} = '{value}'")


def is_known(server: PostgresServer, name: str) -> bool:
    return server.run("SELECT 1 FROM pg_settings WHERE name = '%s'" % name.lower()) == [(1,)]  # noqa: UP031


def works(address: PostgresAddress, clock: ManualClock) -> None:
    """Holds of any name, an alarm, a list: all columns are written and read."""
    alarms = Alarms(address, clock)
    alarms.application.start(alarms=False)
    try:
        alarms.hold("seat-1", "seat-2")
        alarms.application.hold("seat-3", 60)
        assert alarms.run(at=clock.now_ms() + 5_000) == ["ok", "ok"]
        alarms.hold("seat-1")
        found = alarms.application.queries.reservations(limit=10)
        assert [state.status for state in found] == ["held", "expired", "held"]
        jobs = alarms.application.queries.alarms(limit=10)
        assert [round(row[1] * 1000) % 1000 for row in jobs] == [0, 0]
        store = alarms.application._store
        with store.connect() as connection, store.connect() as other:
            assert connection.execute("SHOW transaction_isolation").fetchone() == (
                "read committed",
            )
            assert other.execute("SELECT 'ö\\'").fetchone() == ("ö\\",)
    finally:
        alarms.application.stop()


def test_f38_rows_that_a_policy_hides_are_an_error_and_not_missing(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    address = make_database()
    prepare(address)
    application = ReservationApplication(address)
    application.start(alarms=False)
    try:
        application.hold("seat-1", 60)
        inside = postgres.url(database=name_of(address))
        table = f"{name_of(address)}.reservations"
        postgres.run(
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
            url=inside,
        )
        with pytest.raises(StoreUnavailable, match="row-level security"):
            application.get("seat-1")
    finally:
        application.stop()


def test_f38_a_database_that_is_made_read_only_is_left_so_and_says_why(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    """That is somebody's decision, as for the time of a move."""
    address = make_database()
    prepare(address)
    postgres.run(f"ALTER DATABASE {name_of(address)} SET default_transaction_read_only = on")
    with pytest.raises(StoreError, match="read-only"):
        PostgresStore(address).connect()


# What no session can set


def test_f38_a_server_that_does_not_do_what_is_promised_is_warned_of(
    make_database: Callable[..., PostgresAddress],
    postgres: PostgresServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = make_database()
    postgres.run(f"ALTER DATABASE {name_of(address)} SET zero_damaged_pages = on")
    prepare(address)
    assert "runs with fsync = off: a crash of its machine may destroy" in caplog.text
    assert "runs with zero_damaged_pages = on: rows on damaged pages vanish" in caplog.text
    assert "full_page_writes" not in caplog.text
    assert {r.levelno for r in caplog.records if "runs with" in r.message} == {logging.WARNING}
