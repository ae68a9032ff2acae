"""The tables as they are described, beside those that the released migrations make."""

from typing import Any

import pytest
from sqlalchemy import inspect

from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.sql.tables import EVENTS, REMADE, TOKENS, Table
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.database import sql

TABLES = (EVENTS, *REMADE, TOKENS)


def columns_in(address: Address, table: str) -> list[tuple[str, str, bool]]:
    """(name, what SQLAlchemy calls its type, whether it may be NULL) as the database tells it."""
    store = open_store(address)
    engine = store.engine()
    try:
        found = inspect(engine).get_columns(table)
        return [(c["name"], type(c["type"]).__name__, c["nullable"]) for c in found]
    finally:
        engine.dispose()
        store.close()


KINDS = {
    "key": {"TEXT", "VARCHAR"},
    "text": {"TEXT"},
    "integer": {"INTEGER", "BIGINT"},
    "seconds": {"FLOAT", "DOUBLE_PRECISION"},
    "bytes": {"BLOB", "BYTEA"},
}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_migrated_table_is_as_it_is_described(address: Address, table: Table) -> None:
    found = columns_in(address, table.name)
    assert [name for name, _, _ in found] == list(table.names)
    for column, (_, type_, may_be_null) in zip(table.columns, found, strict=True):
        assert type_ in KINDS[column.kind], column
        is_rowid = column.name == "position" and not isinstance(address, PostgresAddress)
        assert is_rowid or may_be_null is not column.required, column


@pytest.mark.parametrize("table", REMADE, ids=lambda table: table.name)
def test_a_table_that_was_lost_is_made_as_the_migrations_made_it(
    address: Address, table: Table
) -> None:
    before = shape_of(address, table)
    sql(address, f"DROP TABLE {table.name}")
    store = open_store(address)
    store.migrate()
    store.close()
    assert shape_of(address, table) == before


# The first release called a key of SQLite's VARCHAR(191), as APScheduler does, and a column of
# PostgreSQL's that has 0 or 1 integer.
ALIKE = {"VARCHAR": "TEXT", "BIGINT": "INTEGER"}


def shape_of(address: Address, table: Table) -> Any:
    """Columns, key, indexes and how rows are kept."""
    store = open_store(address)
    engine = store.engine()
    try:
        seen = inspect(engine)
        indexes = sorted(
            (i["name"], tuple(i["column_names"])) for i in seen.get_indexes(table.name)
        )
        key = seen.get_pk_constraint(table.name)["constrained_columns"]
        options = seen.get_table_options(table.name)
    finally:
        engine.dispose()
        store.close()
    columns = columns_in(address, table.name)
    return [(n, ALIKE.get(t, t), o) for n, t, o in columns], key, indexes, options
