"""Whose an error is: one row's, or the database's as a whole; and how the one is found."""

import sqlite3

import psycopg
import pytest

from reservation_expiry.infrastructure.alarms.halves import by_halves
from reservation_expiry.infrastructure.errors import (
    DatabaseRefused,
    OutcomeUnknown,
    Overloaded,
    RowRefused,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreStopped,
    StoreUnavailable,
    UndecodableEvent,
    VersionConflict,
    is_of_one,
)
from reservation_expiry.infrastructure.stores.postgres.database import (
    translate as translate_of_a_server,
)
from reservation_expiry.infrastructure.stores.sqlite.database import translate

# What is one row's, and what the database's

OF_ONE_ROW = {
    sqlite3.SQLITE_CORRUPT: StoreDamaged,
    sqlite3.SQLITE_CORRUPT_INDEX: StoreDamaged,
    sqlite3.SQLITE_NOTADB: StoreDamaged,
    sqlite3.SQLITE_IOERR_READ: StoreDamaged,
    sqlite3.SQLITE_IOERR_SHORT_READ: StoreDamaged,
    sqlite3.SQLITE_TOOBIG: RowRefused,
    sqlite3.SQLITE_MISMATCH: RowRefused,
    sqlite3.SQLITE_CONSTRAINT_NOTNULL: RowRefused,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: VersionConflict,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: VersionConflict,
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_IOERR_WRITE: StoreUnavailable,
    sqlite3.SQLITE_IOERR_FSYNC: StoreUnavailable,
    sqlite3.SQLITE_READONLY: StoreUnavailable,
    sqlite3.SQLITE_CANTOPEN: StoreUnavailable,
}
OF_ONE_ROW_OF_A_SERVER = {
    "XX000": StoreDamaged,
    "XX001": StoreDamaged,
    "XX002": StoreDamaged,
    "58030": StoreDamaged,
    "58P01": StoreDamaged,
    "22021": RowRefused,
    "23502": RowRefused,
    "54000": RowRefused,
    "23505": VersionConflict,
    "55P03": StoreBusy,
    "53100": StoreFull,
    "53200": StoreUnavailable,
    "25006": StoreUnavailable,
    "57P01": StoreUnavailable,
}


@pytest.mark.parametrize("code", OF_ONE_ROW)
def test_f80_an_error_of_sqlite_is_one_rows_or_the_files(code: int) -> None:
    error = sqlite3.OperationalError("it says")
    error.sqlite_errorcode = code
    assert type(translate(error)) is OF_ONE_ROW[code]


@pytest.mark.parametrize("code", OF_ONE_ROW_OF_A_SERVER)
def test_f80_an_error_of_a_server_is_one_rows_or_the_servers(code: str) -> None:
    error = psycopg.errors.lookup(code)("it says")
    assert type(translate_of_a_server(error)) is OF_ONE_ROW_OF_A_SERVER[code]


def test_f80_only_those_are_of_one_that_another_piece_of_work_may_not_meet() -> None:
    of_one = {StoreDamaged, RowRefused, VersionConflict, UndecodableEvent, ZeroDivisionError}
    assert all(is_of_one(error()) for error in of_one)
    of_all = {StoreBusy, StoreFull, StoreUnavailable, StoreStopped, OutcomeUnknown, Overloaded}
    of_all.add(DatabaseRefused)
    assert not any(is_of_one(error()) for error in of_all)


# Halves


@pytest.mark.parametrize("bad", [set(), {0}, {7}, {3, 4}, set(range(8))])
def test_f80_by_halves_each_is_run_once_and_the_bad_ones_are_found(bad: set[int]) -> None:
    done, attempts = [], []

    def run(part: list[int]) -> list[int]:
        attempts.append(part)
        if bad & set(part):
            raise StoreDamaged("page 7")
        done.extend(part)
        return part

    found = list(by_halves(list(range(8)), run))
    assert sorted(done) == sorted(set(range(8)) - bad)
    assert {part[0] for part, result, _ in found if result is None} == bad
    assert [i for part, _, _ in found for i in part] == list(range(8))
    assert len(attempts) <= 1 + 2 * len(bad) * 3


def test_f80_by_halves_nothing_more_is_tried_once_the_database_is_away() -> None:
    attempts = []

    def run(part: list[int]) -> list[int]:
        attempts.append(part)
        if len(attempts) == 3:
            raise StoreBusy("away")
        if 7 in part:
            raise StoreDamaged("page 7")
        return part

    (done, result, _), (rest, nothing, error) = by_halves(list(range(8)), run)
    assert (done, result) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert (rest, nothing, type(error)) == ([4, 5, 6, 7], None, StoreBusy)
