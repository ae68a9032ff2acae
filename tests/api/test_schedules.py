"""Schedules through their doors: HTTP and the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from reservation_expiry.api.cli import main
from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from tests.support.clock import ManualClock
from tests.support.loops import schedules_of
from tests.support.server import wait_for

EVENT = "/schedules/agent/events/report"


@pytest.fixture
def client(application: ReservationApplication) -> Iterator[FlaskClient]:
    with schedules_of(application) as schedules:
        yield create_app(application, schedules=schedules).test_client()


def put(client: FlaskClient, path: str = EVENT, **body: Any) -> Any:
    return client.put(path, data=json.dumps(body))


def test_an_event_is_put_replaced_shown_and_cancelled(
    client: FlaskClient, clock: ManualClock
) -> None:
    at_ms = clock.now_ms() + 1_000
    answer = put(client, runAt=at_ms, repeatMs=500, payload={"to": "me"})
    assert answer.status_code == 201
    assert answer.json == {
        "id": "report",
        "runAt": at_ms,
        "lookAt": at_ms,
        "repeatMs": 500,
        "cron": None,
        "zone": None,
        "payload": {"to": "me"},
        "runs": 0,
        "missed": 0,
        "gaveUp": 0,
        "attempts": 0,
        "parked": False,
        "nextProblem": None,
        "revision": 1,
    }
    shown = client.get(EVENT)
    assert shown.json == answer.json
    assert shown.headers["ETag"] == answer.headers["ETag"]
    unchanged = client.get(EVENT, headers={"If-None-Match": answer.headers["ETag"]})
    assert unchanged.status_code == 304
    again = put(client, runAt=at_ms + 1)
    assert (again.status_code, again.json["revision"]) == (200, 2)
    assert again.headers["ETag"] != answer.headers["ETag"]
    assert client.delete(EVENT).status_code == 204
    assert client.delete(EVENT).status_code == client.get(EVENT).status_code == 404


def test_a_cron_expression_is_kept_as_it_was_asked(client: FlaskClient) -> None:
    event = put(client, cron="0 9 * * *", zone="Europe/Brussels").json
    assert (event["cron"], event["zone"]) == ("0 9 * * *", "Europe/Brussels")
    # The clock stands at 2027-01-15T09:00+01:00 exactly: the next time is tomorrow's.
    assert event["runAt"] == 1_800_000_000_000 + 24 * 3_600_000


BAD = {
    "a time that is none": ({"runAt": 0}, "RunAt is a whole number"),
    "nothing": ({}, "RunAt is a whole number"),
    "a short period": ({"runAt": 5, "repeatMs": 99}, "RepeatMs is a whole number"),
    "both": ({"runAt": 5, "cron": "* * * * *"}, "runAt or cron, not both"),
    "an unknown field": ({"runAt": 5, "when": 1}, "unknown field `when`"),
    "a bad expression": ({"cron": "x"}, "is not a cron expression"),
    "a bad zone": ({"cron": "* * * * *", "zone": "X/Y"}, "is not a time zone"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_wrong_is_400_and_stored_nowhere(kind: str, client: FlaskClient) -> None:
    body, sentence = BAD[kind]
    answer = put(client, **body)
    assert answer.status_code == 400
    assert sentence.lower() in answer.json["detail"].lower()
    assert client.get("/schedules/agent").json["events"] == []


def test_a_body_that_is_no_json_is_400(client: FlaskClient) -> None:
    assert client.put(EVENT, data=b"{").status_code == 400
    assert client.put(EVENT, data=b"\xff").status_code == 400


def test_events_are_listed_in_pages(client: FlaskClient) -> None:
    for number in range(3):
        put(client, f"/schedules/agent/events/e{number}", runAt=2_000_000_000_000)
    first = client.get("/schedules/agent?limit=2").json
    rest = client.get(f"/schedules/agent?limit=2&after={first['next']}").json
    assert [e["id"] for e in first["events"] + rest["events"]] == ["e0", "e1", "e2"]
    assert rest["next"] is None
    assert client.get("/schedules/agent?limit=0").status_code == 400
    assert client.get("/schedules/agent?parked=x").status_code == 400
    assert client.get("/schedules/agent?parked=true").json["events"] == []


def test_a_parked_event_is_listed_and_re_driven(
    client: FlaskClient,
    application: ReservationApplication,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: Any, event: Any) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(EventSchedule, "process_event", broken)
    put(client, runAt=clock.now_ms())
    for _ in range(7):
        before = client.get(EVENT).json["attempts"]
        application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
        wait_for(lambda before=before: client.get(EVENT).json["attempts"] > before, 5)
        wait_for(lambda: application.alarm_dispatcher.objects.running == 0, 5)
        clock.advance(100_000)
    parked = client.get("/schedules/agent?parked=true").json["events"]
    assert [(e["id"], e["attempts"]) for e in parked] == [("report", 7)]
    assert client.post(f"{EVENT}/redrive").json["parked"] is False
    assert client.post(f"{EVENT}/redrive").status_code == 409
    assert client.post("/schedules/agent/events/none/redrive").status_code == 404


def test_the_command_line_puts_lists_shows_and_cancels(
    application: ReservationApplication, database_path: Path
) -> None:
    application.stop()

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, [*arguments, "--database", str(database_path)])

    put = run("schedule", "put", "agent", "tea", "--at", "2030-01-01T00:00:00", "--every", "500")
    assert put.exit_code == 0, put.output
    shown = json.loads(run("schedule", "show", "agent", "tea", "--json").output)
    assert (shown["runAt"], shown["repeatMs"]) == (1_893_456_000_000, 500)
    assert "every 500 ms" in run("schedule", "list", "agent").output
    report = run("schedule", "put", "agent", "r", "--cron", "0 9 * * *", "--zone", "UTC", "--json")
    assert json.loads(report.output)["cron"] == "0 9 * * *"
    assert run("schedule", "cancel", "agent", "tea").output == "tea is cancelled\n"
    assert run("schedule", "cancel", "agent", "tea").exit_code == 5
    assert run("schedule", "show", "agent", "tea").exit_code == 5
    assert run("schedule", "redrive", "agent", "r").exit_code == 5
    bad = run("schedule", "put", "agent", "x", "--at", "2030-01-01T00:00:00", "--every", "1")
    assert bad.exit_code == 2
    assert "repeatMs is a whole number" in bad.output
    assert run("schedule", "put", "agent", "x", "--payload", "{").exit_code == 2


def test_f53_the_history_and_the_feed_tell_what_ran_and_what_was_cancelled(
    client: FlaskClient,
    application: ReservationApplication,
    clock: ManualClock,
    database_path: Path,
) -> None:
    put(client, runAt=clock.now_ms(), payload={"to": "me"})
    put(client, "/schedules/agent/events/later", runAt=clock.now_ms() + 60_000)
    client.delete("/schedules/agent/events/later")
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
    wait_for(lambda: client.get(EVENT).status_code == 404, 5)
    shown = client.get("/events").json["events"]
    facts = {e["event"]: e["data"] for e in shown if e["event"] in ("RunEnded", "EventCancelled")}
    now = clock.now_ms()
    assert facts == {
        "EventCancelled": {
            "eventId": "later",
            "revision": 2,
            "plannedAt": now + 60_000,
            "reason": "cancelled",
        },
        "RunEnded": {
            "eventId": "report",
            "revision": 1,
            "plannedAt": now,
            "beganAt": now,
            "endedAt": now,
            "attempt": 1,
            "outcome": "ok",
        },
    }
    arguments = ["history", "EventSchedule/agent", "--database", str(database_path)]
    told = " ".join(CliRunner().invoke(main, arguments).output.split())
    assert 'eventId "report", revision 1, plannedAt 2027-01-15T08:00:00.000Z' in told
    assert 'attempt 1, outcome "ok"' in told
