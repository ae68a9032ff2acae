"""The command line, as a person or a script meets it."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from docs.make_cli_reference import reference
from reservation_expiry.api.cli import main
from reservation_expiry.api.cli.common import (
    EXIT_DIFFERENT,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
)
from reservation_expiry.infrastructure.application import ReservationApplication
from tests.infrastructure.test_log_tools import tamper
from tests.support.clock import ManualClock

ROOT = Path(__file__).parents[2]
EXIT_USAGE = click.UsageError.exit_code


@pytest.fixture
def run(database_path: Path):
    """Runs a command line on the test's database; never lets a traceback pass."""

    def run(*arguments: str, database: Path = database_path) -> Result:
        environment = {"RESERVATION_DATABASE": str(database)}
        result = CliRunner().invoke(main, arguments, env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        assert "Traceback" not in result.output
        return result

    return run


def json_lines(result: Result) -> list[dict]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_hold_then_show_says_held(run) -> None:
    (held,) = json_lines(run("hold", "seat-1", "--ttl", "60", "--json"))
    assert json_lines(run("show", "seat-1", "--json")) == [held]
    assert (held["status"], held["alarmAt"]) == ("held", held["createdAt"] + 60_000)


def test_a_table_shows_every_column_in_a_pipe(run) -> None:
    run("hold", "seat-1", "--ttl", "60")
    heading, _, row = run("show", "seat-1").output.splitlines()
    assert heading.split() == [
        *("RESERVATION", "STATUS", "CREATED", "EXPIRES", "EXPIRED", "COUNT", "ALARM")
    ]
    assert row.startswith("seat-1 ")
    assert row.rstrip().endswith("Z")


def test_show_at_a_time_is_replayed_from_the_log(
    run, application: ReservationApplication, clock: ManualClock
) -> None:
    first = application.hold("seat-1", 60)
    clock.advance(10_000)
    application.hold("seat-1", 600)
    at = str(first.created_at_ms + 9_999)
    (then,) = json_lines(run("show", "seat-1", "--at", at, "--json"))
    assert then["expiresAt"] == first.expires_at_ms
    (then,) = json_lines(run("show", "seat-1", "--version", "3", "--json"))
    assert (then["expiresAt"], then["alarmAt"]) == (clock.now_ms() + 600_000, None)
    before = str(first.created_at_ms - 1)
    assert run("show", "seat-1", "--at", before).exit_code == EXIT_NOT_FOUND
    assert run("show", "seat-1", "--version", "5").exit_code == EXIT_NOT_FOUND


@pytest.mark.parametrize(
    "time", ["2027-01-15T08:00:00.000", "2027-01-15T09:00:00+01:00", "1800000000000"]
)
def test_a_time_may_be_written_as(time: str, run, application: ReservationApplication) -> None:
    application.hold("seat-1", 60)  # at 1800000000000, 2027-01-15T08:00:00Z
    assert len(json_lines(run("show", "seat-1", "--at", time, "--json"))) == 1


def test_history_and_events_tell_what_happened(run, application: ReservationApplication) -> None:
    application.hold("seat-1", 60)
    application.hold("seat-2", 60)
    names = [event["event"] for event in json_lines(run("history", "seat-1", "--json"))]
    assert names == ["Held", "AlarmScheduled"]
    positions = [event["position"] for event in json_lines(run("events", "--json"))]
    assert positions == [1, 2, 3, 4]
    assert len(json_lines(run("events", "--after", "1", "--limit", "2", "--json"))) == 2
    assert (
        "seat-2  2 AlarmScheduled  scheduledTime 2027-01-15T08:01:00.000Z" in run("events").output
    )


def test_list_filters(run, application: ReservationApplication) -> None:
    for name in ("a-1", "a-2", "b-1"):
        application.hold(name, 60)
    application.expire("a-1", 1_800_000_060_000)
    listed = json_lines(run("list", "--prefix", "a-", "--status", "held", "--json"))
    assert [state["reservationId"] for state in listed] == ["a-2"]
    assert json_lines(run("list", "--due-before", "1800000060000", "--json")) == []


def test_alarms_are_listed_and_parked_ones_redriven(
    run, application: ReservationApplication, database_path: Path
) -> None:
    for name in ("seat-1", "seat-2", "seat-3"):
        application.hold(name, 60)
    tamper(
        database_path,
        "UPDATE alarms SET next_run_time = NULL WHERE id != 'reservation/seat-3'",
        "UPDATE alarms SET job_state = x'00' WHERE id = 'reservation/seat-2'",
    )
    parked = json_lines(run("alarms", "list", "--parked", "--json"))
    assert [(a["reservationId"], a["state"]) for a in parked] == [
        ("seat-1", "parked"),
        ("seat-2", "parked, unreadable"),
    ]
    assert run("alarms", "redrive", "seat-1").output == "seat-1 is re-driven\n"
    assert run("alarms", "redrive", "--all").output == "alarms re-driven: 1\n"
    assert json_lines(run("alarms", "list", "--parked", "--json")) == []
    assert len(json_lines(run("alarms", "list", "--json"))) == 3
    assert run("alarms", "redrive", "nobody").exit_code == EXIT_NOT_FOUND
    assert run("alarms", "redrive").exit_code == EXIT_USAGE


def test_verify_exits_1_with_the_position_of_each_difference(
    run, application: ReservationApplication, database_path: Path
) -> None:
    application.hold("seat-1", 60)
    application.stop()
    assert run("log", "verify").exit_code == 0
    tamper(database_path, "DELETE FROM alarms")
    result = run("log", "verify")
    assert result.exit_code == EXIT_DIFFERENT
    assert "2          seat-1   is held, and has no alarm" in result.output
    report = json.loads(run("log", "verify", "--json").stdout)
    assert (report["ok"], report["found"], report["differences"][0]["position"]) == (False, 1, 2)
    assert "1 differences repaired" in run("log", "rebuild").output
    assert run("log", "verify").exit_code == 0


def test_replay_changes_it_once(run, application: ReservationApplication) -> None:
    held = application.hold("seat-1", 60)
    due = str(held.expires_at_ms)
    result = run("log", "replay", "seat-1", "--now", due, "--times", "2", "--json")
    assert [body["changed"] for body in json_lines(result)] == [True, False]
    assert [body["expirationCount"] for body in json_lines(result)] == [1, 1]


def test_export_and_import_through_files_and_a_pipe(
    run, application: ReservationApplication, database_path: Path, tmp_path: Path
) -> None:
    application.hold("seat-1", 60)
    application.stop()
    exported = run("log", "export", "-")
    assert exported.exit_code == 0
    copy = tmp_path / "copy.db"
    imported = CliRunner().invoke(
        main, ["log", "import", "-", "--database", str(copy)], input=exported.stdout_bytes
    )
    assert imported.exit_code == 0, imported.output
    assert run("log", "digest", database=copy).output == run("log", "digest").output


def test_backup_and_restore(run, application: ReservationApplication, tmp_path: Path) -> None:
    application.hold("seat-1", 60)
    backup = str(tmp_path / "backup.db")
    assert "2 events" in run("backup", backup).output
    assert "is there already" not in run("backup", backup, "--force").output
    assert run("restore", backup, "--force").exit_code == EXIT_REFUSED  # it is in use
    application.stop()
    assert run("restore", backup).exit_code == EXIT_REFUSED
    assert run("restore", backup, "--force").exit_code == 0


MISTAKES = {
    ("show", "A"): (EXIT_USAGE, "'A' is not a reservation id: use 3-40 lowercase"),
    ("hold", "seat-1", "--ttl", "4"): (EXIT_USAGE, "a hold lasts from 5 to 3600 seconds, not 4"),
    ("hold", "seat-1"): (EXIT_USAGE, "Missing option '--ttl'"),
    ("show", "seat-1", "--at", "noon"): (EXIT_USAGE, "'noon' is not a time: use"),
    ("show", "seat-1", "--at", "99:00"): (EXIT_USAGE, "is not a time"),
    ("show", "seat-1"): (EXIT_NOT_FOUND, "seat-1 was not held"),
    ("history", "seat-1"): (EXIT_NOT_FOUND, "nothing ever happened to seat-1"),
    ("log", "import", "/nope/file"): (EXIT_REFUSED, "/nope/file: no such file or directory"),
    ("log", "export", "/nope/file"): (EXIT_REFUSED, "no such file or directory"),
    ("backup", "/nope/file"): (EXIT_REFUSED, "/nope"),
    ("restore", "/nope/file"): (EXIT_REFUSED, "there is no database at /nope/file"),
    ("log", "diff", "--from", "12:00", "--to", "11:00"): (EXIT_USAGE, "--to lies before --from"),
    ("serve", "--port", "0"): (EXIT_USAGE, "0 is not in the range"),
    ("list", "--database", "mysql://x/y"): (
        EXIT_USAGE,
        "that is no file of ours, for its scheme",
    ),
    ("copy", "--from", "/nope/x.db", "--to", "y.db"): (EXIT_REFUSED, "no database at /nope/x.db"),
    ("list", "--database", "/nope/x.db"): (EXIT_REFUSED, "there is no database at /nope/x.db"),
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_gets_a_sentence_and_an_exit_code(arguments: tuple[str, ...], run) -> None:
    code, sentence = MISTAKES[arguments]
    result = run(*arguments)
    assert (result.exit_code, sentence in result.output) == (code, True), result.output


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_copy_makes_a_database_with_the_same_digest(
    run, application: ReservationApplication, database_path: Path, tmp_path: Path, prefix: str
) -> None:
    application.hold("seat-1", 60)
    target = tmp_path / "new" / "copy.db"
    result = run("copy", "--from", f"{prefix}{database_path}", "--to", f"{prefix}{target}")
    assert f"{target}: 2 events, digest {application.queries.digest()}" in result.output
    assert run("log", "digest", database=target).output == run("log", "digest").output


def test_the_reference_is_what_the_commands_say() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "run `make docs`"


def test_a_clock_beyond_every_calendar_is_shown_as_a_number(
    run, application: ReservationApplication
) -> None:
    application.hold("seat-1", 60)
    application.expire("seat-1", 2**53 - 1)
    assert "9007199254740991 ms" in run("show", "seat-1").output
    assert "9007199254740991 ms" in run("history", "seat-1").output
