"""Which tables are meant: those where a process began, wherever a search path leads later."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import DatabaseRefused
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from reservation_expiry.infrastructure.stores.postgres.store import PostgresStore
from tests.support.postgres import PostgresServer, name_of


@pytest.mark.parametrize("by", ["DATABASE", "ROLE"])
def test_f38_a_search_path_that_is_changed_leads_nowhere_else_while_a_process_lives(
    by: str, make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    address = make_database()
    name = name_of(address)
    prepare(address)
    application = ReservationApplication(address)
    application.start(alarms=False)
    try:
        application.hold("seat-1", 60)
        postgres.run(f"CREATE SCHEMA other AUTHORIZATION {name}", url=postgres.url(database=name))
        postgres.run(f"ALTER {by} {name} SET search_path = other")
        application._store._readers.forget_idle()
        assert application.get("seat-1").status == "held"
        with application._store.connect() as connection:
            assert connection.execute("SELECT current_schema()").fetchone() == (name,)
    finally:
        application.stop()


def test_f38_a_search_path_that_leads_past_our_tables_is_refused(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    address = make_database()
    name = name_of(address)
    prepare(address)
    postgres.run(f"CREATE SCHEMA other AUTHORIZATION {name}", url=postgres.url(database=name))
    postgres.run(f"ALTER DATABASE {name} SET search_path = other")
    with pytest.raises(DatabaseRefused, match=f"tables of ours in {name}, .* path leads to other"):
        prepare(address)
    for schema in (name, "other"):  # said, it is what is meant
        prepare(PostgresAddress(f"{address.url}?options=-csearch_path%3D{schema}"))
    with pytest.raises(DatabaseRefused, match=f"tables of ours in {name}, .* path leads to other"):
        prepare(address)


def test_f38_tables_that_are_another_roles_are_none_that_could_be_meant(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    """Two roles, each with a schema of its name, in one database."""
    address, name = (made := make_database()), name_of(made)
    prepare(address)
    second = f"{name}_second"
    postgres.run(f"CREATE ROLE {second} LOGIN", url=postgres.url(database=name))
    try:
        postgres.run(
            f"CREATE SCHEMA {second} AUTHORIZATION {second}", url=postgres.url(database=name)
        )
        prepare(PostgresAddress(postgres.url(user=second, database=name)))
        prepare(address)
    finally:
        postgres.run(
            f"DROP OWNED BY {second}", f"DROP ROLE {second}", url=postgres.url(database=name)
        )


def test_f38_tables_stay_where_they_are_found_on_the_path(
    make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    """In `public`, though a schema of the role's own name has been made since."""
    address = make_database()
    name = name_of(address)
    inside = postgres.url(database=name)
    postgres.run(f"DROP SCHEMA {name}", f"GRANT ALL ON SCHEMA public TO {name}", url=inside)
    prepare(address)
    postgres.run(f"CREATE SCHEMA {name} AUTHORIZATION {name}", url=inside)
    prepare(address)
    with PostgresStore(address).connect() as connection:
        assert connection.execute("SELECT current_schema()").fetchone() == ("public",)


@pytest.mark.parametrize("schema", ['We"ird, one', "it's", "SELECT"])
def test_f38_a_schema_of_any_name_is_stayed_in(
    schema: str, make_database: Callable[..., PostgresAddress], postgres: PostgresServer
) -> None:
    address, quoted = make_database(), '"' + schema.replace('"', '""') + '"'
    inside = postgres.url(database=name_of(address))
    postgres.run(f"CREATE SCHEMA {quoted} AUTHORIZATION {name_of(address)}", url=inside)
    postgres.run(f"ALTER DATABASE {name_of(address)} SET search_path = {quoted}")
    prepare(address)
    with PostgresStore(address).connect() as connection:
        assert connection.execute("SELECT current_schema()").fetchone() == (schema,)
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)


def test_f38_the_environments_and_the_urls_options_are_heard_otherwise(
    make_database: Callable[..., PostgresAddress],
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    address = make_database()
    name = name_of(address)
    postgres.run(f"CREATE SCHEMA third AUTHORIZATION {name}", url=postgres.url(database=name))
    monkeypatch.setenv("PGOPTIONS", "-c search_path=third -c work_mem=1234kB")
    with PostgresStore(address).connect() as connection:
        found = connection.execute("SELECT current_schema(), current_setting('work_mem')")
        assert found.fetchone() == ("third", "1234kB")
    monkeypatch.delenv("PGOPTIONS")
    service = tmp_path / "services"
    service.write_text("[ours]\noptions=-csearch_path=third -cstatement_timeout=1\n")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    with PostgresStore(PostgresAddress(f"{address.url}?service=ours")).connect() as connection:
        found = connection.execute("SELECT current_schema(), current_setting('statement_timeout')")
        assert found.fetchone() == ("third", "6s")
    assert name != "third"
