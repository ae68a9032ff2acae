"""`doctor`: one line each, and exit 1 if one is bad. (An operator's, so `-k operator` has it.)"""

import json
import sqlite3
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reservation_expiry.api.cli import doctor as doctor_module
from reservation_expiry.api.cli import main
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.server import url_of

CHECKS = (
    "address",
    "schema",
    "commits",
    "fsync",
    "disk",
    "clock",
    "time zones",
    "open files",
    "versions",
)


def doctor(database: Address, *words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--database", url_of(database), *words])


def bad(result: Result) -> set[str]:
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert tuple(line["check"] for line in lines) == CHECKS
    found = {line["check"] for line in lines if not line["ok"]}
    assert result.exit_code == (1 if found else 0)
    return found


def test_the_operators_doctor_has_a_line_for_each_thing(address: Address, store: str) -> None:
    result = doctor(address, "--json")
    # The tests' PostgreSQL does not wait for its disk, which is what is to be told.
    assert bad(result) == (set() if store == "sqlite" else {"address", "commits"})
    lines = doctor(address).stdout.splitlines()
    assert len(lines) == len(CHECKS)
    assert all(line.startswith(("ok ", "BAD")) for line in lines)


def test_the_operators_doctor_makes_no_database(tmp_path: Path) -> None:
    assert bad(doctor(tmp_path / "new.db", "--json")) == set()
    assert list(tmp_path.iterdir()) == []


def test_the_operators_doctor_sees_a_database_that_others_may_read(database_path: Path) -> None:
    database_path.chmod(0o644)
    result = doctor(database_path, "--json")
    assert bad(result) == {"address"}
    assert "chmod 600 it" in result.stdout


def test_the_operators_doctor_sees_an_older_schema_and_another_journal(
    database_path: Path,
) -> None:
    connection = sqlite3.connect(database_path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    result = doctor(database_path, "--json")
    assert bad(result) == {"schema", "commits"}
    assert "serve it once to migrate it" in result.stdout


def test_the_operators_doctor_sees_a_log_from_the_future(
    application: ReservationApplication, address: Address, clock: ManualClock
) -> None:
    clock.move_to(4_000_000_000_000)
    application.hold("seat-1", 60)
    result = doctor(address, "--json")
    assert "clock" in bad(result)
    assert "in its future" in result.stdout


def test_the_operators_doctor_sees_a_full_slow_and_narrow_machine(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor_module.shutil, "disk_usage", lambda _: usage(1, 1, 1000))
    monkeypatch.setattr(doctor_module, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(doctor_module, "_sync_times_ms", lambda _: [1.0, 900.0, 900.0])
    monkeypatch.setattr(doctor_module, "version", no_version)
    result = doctor(database_path, "--json")
    assert bad(result) == {"fsync", "disk", "open files", "time zones"}


def no_version(package: str) -> Any:
    if package == "tzdata":
        raise doctor_module.PackageNotFoundError(package)
    return "0"


def test_the_operators_doctor_shows_no_password(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["doctor", "--database", "postgresql://app:s3cret@127.0.0.1:1/d"]
    )
    assert result.exit_code == 1
    assert "s3cret" not in result.output
