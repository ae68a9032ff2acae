"""Either store's tables, behind the product's back: with drivers and SQL of our own."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from reservation_expiry.infrastructure.stores.address import Address, PostgresAddress
from reservation_expiry.infrastructure.stores.postgres.database import LIMITS


class Connection:
    """`rows(statement, *values)` on an open connection.

    Values are `?` in the statement; bytes in it are written x'00'.
    """

    def __init__(self, connection: Any, is_postgres: bool) -> None:
        self._connection = connection
        self._is_postgres = is_postgres

    def rows(self, statement: str, *values: Any) -> list[tuple]:
        if self._is_postgres:
            statement = re.sub("x'([0-9a-f]*)'", r"'\\x\1'", statement.replace("?", "%s"))
        cursor = self._connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def connected(address: Address) -> Iterator[Connection]:
    """In autocommit mode."""
    is_postgres = isinstance(address, PostgresAddress)
    if is_postgres:
        connection: Any = psycopg.connect(address.url, autocommit=True)
    else:
        connection = sqlite3.connect(address, isolation_level=None)
    try:
        yield Connection(connection, is_postgres)
    finally:
        connection.close()


@contextmanager
def snapshot(address: Address) -> Iterator[Connection]:
    """Reads of one commit."""
    with connected(address) as connection:
        begin = "BEGIN"
        if isinstance(address, PostgresAddress):
            begin += " ISOLATION LEVEL REPEATABLE READ READ ONLY"
        connection.rows(begin)
        yield connection


def sql(address: Address, statement: str, *values: Any) -> list[tuple]:
    """Runs one statement and commits it."""
    with connected(address) as connection:
        return connection.rows(statement, *values)


class CannotLock(Exception):
    """Somebody else has the log's lock."""


@contextmanager
def locked(address: Address, timeout: float = 10) -> Iterator[None]:
    """Another process (this one) has the log's lock. Raises CannotLock after `timeout` s."""
    with connected(address) as connection:
        try:
            if isinstance(address, PostgresAddress):
                connection.rows(f"SET lock_timeout = {int(timeout * 1000)}")
                connection.rows("BEGIN")
                connection.rows("SELECT 1 FROM log_head FOR UPDATE")
            else:
                connection.rows(f"PRAGMA busy_timeout = {int(timeout * 1000)}")
                connection.rows("BEGIN EXCLUSIVE")
        except (sqlite3.OperationalError, psycopg.errors.LockNotAvailable) as error:
            raise CannotLock from error
        yield
        connection.rows("ROLLBACK")


def have_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot have the log's lock at once is told so."""
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.sqlite.session.BUSY_TIMEOUT_MS", 0
    )
    monkeypatch.setitem(LIMITS, "lock_timeout", 50)
