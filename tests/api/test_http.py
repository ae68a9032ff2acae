"""What the HTTP door offers beyond the recorded contract: health, lists, logs, problems.

On a manual clock, over Flask's test client. The contract itself is in tests/contract/.
"""

import importlib
import pkgutil
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from reservation_expiry import api, domain, infrastructure
from reservation_expiry.api.http import create_app
from reservation_expiry.api.problems import STATUS_OF
from reservation_expiry.api.read_routes import DEFAULT_LIMIT, MAX_LIMIT
from reservation_expiry.domain.errors import InvalidNow, NotDue, ReservationExpiryError
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import (
    DamagedLog,
    Overloaded,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreStopped,
    UndecodableEvent,
    VersionConflict,
)
from reservation_expiry.infrastructure.startup import prepare
from tests.support.server import wait_for

BAD_ID = {"error": "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."}
QUESTIONS = ("/healthz", "/readyz", "/reservations", "/reservations/abc/events", "/events")
# The same request answered by the shortcut in front of Flask, and by Flask.
BOTH_WAYS = ("/reservations/abc", "/x/../reservations/abc")

# Errors of commands that stop before there is a server, or work without one. No request
# can meet them, so they need no status; a test below holds that to be so.
COMMAND_LINE_ERRORS = {
    "CannotListen",
    "CannotServe",
    "DatabaseInUse",
    "FileRefused",
    "ImportRefused",
    "WorkerRefused",
}


@pytest.fixture
def client(application: ReservationApplication) -> FlaskClient:
    return create_app(application).test_client()


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests that write nothing."""
    path = tmp_path_factory.mktemp("empty") / "reservations.db"
    prepare(path)
    return path


@pytest.fixture(scope="module")
def idle_client(empty_database: Path) -> Iterator[FlaskClient]:
    """Nothing is held and nothing can be: the application was never started."""
    application = ReservationApplication(empty_database)
    yield create_app(application).test_client()
    application.stop()


class FailingApplication(ReservationApplication):
    """Answers every hold with the error it was given."""

    error: Exception

    def hold(self, name: str, ttl_seconds: int) -> Reservation:
        raise self.error


@pytest.fixture
def failing(empty_database: Path) -> Iterator[FailingApplication]:
    application = FailingApplication(empty_database)
    yield application
    application.stop()


def hold_all(application: ReservationApplication, *names: str, ttl_seconds: int = 60) -> None:
    for name in names:
        application.hold(name, ttl_seconds)


def names_in(answer: TestResponse) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [reservation["reservationId"] for reservation in answer.json["reservations"]]


def assert_problem(answer: TestResponse, status: int, code: str) -> dict[str, Any]:
    """The members of the problem document, which has the standard ones and a code."""
    assert answer.status_code == status
    assert answer.content_type == "application/problem+json"
    assert list(answer.json) == ["type", "title", "status", "detail", "code"]
    assert answer.json["type"] == "about:blank"
    assert answer.json["title"] == HTTPStatus(status).phrase
    assert answer.json["status"] == status
    assert answer.json["code"] == code
    assert answer.json["detail"].endswith(".")
    return answer.json


# Health


def test_nothing_starts_in_create_app_and_yet_the_process_lives(database_path, clock):
    threads = threading.enumerate()
    client = create_app(ReservationApplication(database_path, clock)).test_client()
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json) == (200, {"status": "ok"})
    assert threading.enumerate() == threads


def test_without_its_alarm_clock_the_process_is_not_ready_and_says_why(client):
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.content_type == "application/json"
    assert answer.json == {
        "status": "not ready",
        "reasons": ["the alarm clock is not running"],
        "backlogMs": 0,
        "parked": 0,
        "alarms": {},
        "logLinesDropped": 0,
    }


@pytest.mark.real_time
def test_with_its_alarm_clock_the_process_becomes_ready(application, client):
    application.alarm_clock.start()
    answer = wait_for(lambda: (ready := client.get("/readyz")).status_code == 200 and ready, 5)
    assert answer.json["status"] == "ready"
    assert answer.json["reasons"] == []
    assert "Retry-After" not in answer.headers


def test_readiness_tells_how_long_the_oldest_due_alarm_has_waited(application, client, clock):
    hold_all(application, "abc", ttl_seconds=5)
    clock.advance(5_000)
    assert client.get("/readyz").json["backlogMs"] == 0
    clock.advance(1_500)
    assert client.get("/readyz").json["backlogMs"] == 1_500


def test_readiness_counts_alarms_by_their_outcome(application, client, clock):
    hold_all(application, "abc", "abd", ttl_seconds=5)
    clock.advance(5_000)
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
    answer = client.get("/readyz")
    assert answer.json["alarms"]["ok"] == 2
    assert answer.json["backlogMs"] == 0


# GET /reservations


def test_no_reservations_are_an_empty_page(idle_client):
    assert idle_client.get("/reservations").json == {"reservations": [], "nextCursor": None}


def test_a_list_shows_reservations_as_their_own_route_does_in_order_of_ids(application, client):
    hold_all(application, "bbb", "aaa", "a-a")
    application.expire("aaa", application.clock.now_ms() + 60_000)
    answer = client.get("/reservations")
    assert names_in(answer) == ["a-a", "aaa", "bbb"]
    assert answer.json["reservations"] == [
        client.get(f"/reservations/{name}").json for name in names_in(answer)
    ]


def test_a_list_can_be_of_one_status(application, client):
    hold_all(application, "aaa", "bbb", "ccc")
    application.expire("bbb", application.clock.now_ms() + 60_000)
    assert names_in(client.get("/reservations?status=held")) == ["aaa", "ccc"]
    assert names_in(client.get("/reservations?status=expired")) == ["bbb"]


def test_a_list_can_be_of_ids_that_begin_alike(application, client):
    hold_all(application, "abc", "abc-1", "abcd", "abd", "xabc")
    assert names_in(client.get("/reservations?prefix=abc")) == ["abc", "abc-1", "abcd"]
    assert names_in(client.get("/reservations?prefix=abc-")) == ["abc-1"]
    assert names_in(client.get("/reservations?prefix=" + "a" * 40)) == []
    assert len(names_in(client.get("/reservations?prefix="))) == 5


@pytest.mark.parametrize(("offset_ms", "names"), [(-1, []), (0, []), (1, ["abc"])])
def test_due_before_leaves_out_the_instant_itself(application, client, offset_ms, names):
    expires_at_ms = application.hold("abc", 60).expires_at_ms
    answer = client.get(f"/reservations?dueBefore={expires_at_ms + offset_ms}")
    assert names_in(answer) == names


def test_what_has_expired_is_not_due(application, client):
    expires_at_ms = application.hold("abc", 60).expires_at_ms
    application.expire("abc", expires_at_ms)
    assert names_in(client.get(f"/reservations?dueBefore={expires_at_ms + 1}")) == []


def test_filters_hold_together(application, client):
    hold_all(application, "a-1", "a-2", "b-1")
    hold_all(application, "a-3", ttl_seconds=3600)
    now_ms = application.clock.now_ms()
    application.expire("a-2", now_ms + 60_000)
    query = f"status=held&prefix=a-&dueBefore={now_ms + 60_001}"
    assert names_in(client.get(f"/reservations?{query}")) == ["a-1"]


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, MAX_LIMIT])
def test_the_cursor_leads_through_all_pages_in_order_and_shows_nothing_twice(
    application, client, limit
):
    names = ["a-0", "a-1", "abc", "b0b", "zzz", "a--a", "000"]
    hold_all(application, *names)
    pages = list(pages_of(client, f"limit={limit}"))
    assert [name for page in pages for name in page] == sorted(names)
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert pages[-1]


def test_the_cursor_keeps_its_place_and_its_filter_while_reservations_come_and_end(
    application, client
):
    hold_all(application, "a-2", "a-4", "a-6", "b-1")
    pages = pages_of(client, "limit=2&prefix=a-")
    assert next(pages) == ["a-2", "a-4"]
    hold_all(application, "a-1", "a-3", "a-5")
    application.expire("a-6", application.clock.now_ms() + 60_000)
    assert list(pages) == [["a-5", "a-6"]]


def pages_of(client: FlaskClient, query: str) -> Iterator[list[str]]:
    """The ids on each page, for as long as there is a next one."""
    answer = client.get(f"/reservations?{query}")
    yield names_in(answer)
    while (cursor := answer.json["nextCursor"]) is not None:
        answer = client.get(f"/reservations?{query}&cursor={quote(cursor)}")
        yield names_in(answer)


def test_a_page_has_a_hundred_reservations_unless_told_otherwise(application, client):
    hold_all(application, *(f"r-{number:03}" for number in range(DEFAULT_LIMIT + 1)))
    answer = client.get("/reservations")
    assert DEFAULT_LIMIT == 100
    assert len(names_in(answer)) == DEFAULT_LIMIT
    assert answer.json["nextCursor"] is not None


@pytest.mark.parametrize("path", ["/reservations", "/events", "/reservations/abc/events"])
@pytest.mark.parametrize("limit", ["0", "1001", "-1", "+1", "1.0", "1e2", "", "x", " 1", "１"])
def test_a_limit_out_of_bounds_is_refused(idle_client, path, limit):
    problem = assert_problem(
        idle_client.get(f"{path}?limit={quote(limit)}"), 400, "invalid-parameter"
    )
    assert problem["detail"] == "limit must be an integer from 1 to 1000."


@pytest.mark.parametrize("path", ["/reservations", "/events", "/reservations/abc/events"])
@pytest.mark.parametrize("limit", [1, MAX_LIMIT])
def test_the_bounds_of_a_limit_are_allowed(application, client, path, limit):
    hold_all(application, "abc")
    assert client.get(f"{path}?limit={limit}").status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "cursor=a",
        "cursor=%C3%A9",
        "cursor=_w==",
        "cursor=not+a+cursor",
        "status=missing",
        "status=HELD",
        "status=",
        "prefix=A",
        "prefix=a%25",
        "prefix=a%0A",
        "prefix=" + "a" * 41,
        "dueBefore=-1",
        "dueBefore=1.5",
        "dueBefore=soon",
        f"dueBefore={2**53}",
        "dueBefore=" + "1" * 5000,
    ],
)
def test_a_filter_or_cursor_that_is_not_allowed_is_refused(idle_client, query):
    hold_all("abc")
    problem = assert_problem(idle_client.get(f"/reservations?{query}"), 400, "invalid-parameter")
    assert problem["detail"].startswith(query.partition("=")[0] + " must be ")


@pytest.mark.parametrize("cursor", ["!!!!", "YWJj!", "AAAA"])
def test_a_cursor_that_this_service_never_gave_is_refused(idle_client, cursor):
    answer = idle_client.get(f"/reservations?cursor={quote(cursor)}")
    assert_problem(answer, 400, "invalid-parameter")


# GET /reservations/<id>/events and GET /events


def test_a_history_has_every_event_of_one_reservation_in_order(application, client, clock):
    held_at_ms = clock.now_ms()
    hold_all(application, "abc", "other")
    clock.advance(60_001)
    application.expire("abc", held_at_ms + 60_000)
    assert client.get("/reservations/abc/events").json == {
        "reservationId": "abc",
        "events": [
            {
                "position": 1,
                "version": 1,
                "event": "Held",
                "recordedAt": held_at_ms,
                "data": {"createdAt": held_at_ms, "expiresAt": held_at_ms + 60_000},
            },
            {
                "position": 2,
                "version": 2,
                "event": "AlarmScheduled",
                "recordedAt": held_at_ms,
                "data": {"scheduledTime": held_at_ms + 60_000},
            },
            {
                "position": 5,
                "version": 3,
                "event": "Expired",
                "recordedAt": held_at_ms + 60_001,
                "data": {"expiredAt": held_at_ms + 60_000},
            },
        ],
    }


@pytest.mark.parametrize(
    ("query", "versions"),
    [
        ("", [1, 2, 3, 4]),
        ("after=0", [1, 2, 3, 4]),
        ("after=2", [3, 4]),
        ("limit=3", [1, 2, 3]),
        ("after=1&limit=2", [2, 3]),
        ("after=4", []),
        (f"after={2**53 - 1}", []),
    ],
)
def test_a_history_goes_on_from_behind_a_version(application, client, query, versions):
    hold_all(application, "other", "abc", "abc")
    answer = client.get(f"/reservations/abc/events?{query}")
    assert [event["version"] for event in answer.json["events"]] == versions


@pytest.mark.parametrize("query", ["", "?after=7", "?limit=1"])
def test_what_was_never_held_has_no_history(application, client, query):
    hold_all(application, "abcd")
    answer = client.get(f"/reservations/abc/events{query}")
    problem = assert_problem(answer, 404, "reservation-not-found")
    assert problem["detail"] == "abc was never held."


def test_the_feed_has_the_events_of_all_reservations_in_the_order_of_the_log(application, client):
    hold_all(application, "bbb", "aaa")
    application.expire("bbb", application.clock.now_ms() + 60_000)
    answer = client.get("/events")
    shown = [
        (event["position"], event["reservationId"], event["version"], event["event"])
        for event in answer.json["events"]
    ]
    assert shown == [
        (1, "bbb", 1, "Held"),
        (2, "bbb", 2, "AlarmScheduled"),
        (3, "aaa", 1, "Held"),
        (4, "aaa", 2, "AlarmScheduled"),
        (5, "bbb", 3, "Expired"),
    ]
    assert answer.json["next"] == 5
    of_bbb = [event for event in answer.json["events"] if event.pop("reservationId") == "bbb"]
    assert client.get("/reservations/bbb/events").json["events"] == of_bbb


def test_asking_the_feed_again_with_next_follows_it_without_a_gap(application, client):
    hold_all(application, "aaa", "bbb")
    seen, after = [], 0
    for _ in range(3):
        page = client.get(f"/events?after={after}&limit=3").json
        seen += [event["position"] for event in page["events"]]
        after = page["next"]
    assert seen == [1, 2, 3, 4]
    assert page == {"events": [], "next": 4}
    hold_all(application, "ccc")
    page = client.get("/events?after=4").json
    assert [event["position"] for event in page["events"]] == [5, 6]


def test_an_empty_log_is_an_empty_feed(idle_client):
    assert idle_client.get("/events").json == {"events": [], "next": 0}


@pytest.mark.parametrize("path", ["/events", "/reservations/abc/events"])
@pytest.mark.parametrize("after", ["-1", "x", "", "1.0", str(2**53)])
def test_a_position_or_version_that_cannot_be_is_refused(idle_client, path, after):
    hold_all("abc")
    assert_problem(idle_client.get(f"{path}?after={after}"), 400, "invalid-parameter")


@pytest.mark.parametrize("path", ["/events", "/reservations/abc/events"])
def test_an_event_that_cannot_be_decoded_says_so_and_hides_no_other(
    application, client, database_path, path
):
    hold_all(application, "abc")
    with sqlite3.connect(database_path) as connection:
        connection.execute("UPDATE events SET topic = 'os:system' WHERE position = 1")
    connection.close()
    unknown, known = client.get(path).json["events"]
    assert unknown["data"] is None
    assert "unknown topic 'os:system'" in unknown["problem"]
    assert known["data"] is not None
    assert "problem" not in known


# Problems


@pytest.mark.parametrize("path", QUESTIONS)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_question_takes_no_other_method_and_says_which_it_does(idle_client, path, method):
    answer = idle_client.open(path, method=method)
    assert_problem(answer, 405, "method-not-allowed")
    assert "GET" in answer.headers["Allow"].split(", ")
    assert method not in answer.headers["Allow"].split(", ")


@pytest.mark.parametrize(
    "path", ["/nothing", "/events/", "/reservations/", "/reservations/A/events"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_the_contracts_bad_id_for_any_method(idle_client, path, method):
    answer = idle_client.open(path, method=method)
    assert (answer.status_code, answer.content_type) == (400, "application/json")
    assert answer.json == BAD_ID


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
def test_without_the_replay_route_its_path_is_an_unknown_one(application, method):
    hold_all(application, "abc")
    client = create_app(application, replay_route=False).test_client()
    body = {"now": application.clock.now_ms() + 60_000}
    answer = client.open("/reservations/abc/replay-alarm", method=method, json=body)
    unknown = client.open("/reservations/abc/no-such-thing", method=method, json=body)
    assert answer.status_code == unknown.status_code == 400
    assert answer.data == unknown.data
    assert answer.json == BAD_ID
    assert application.get("abc").status == "held"


def test_with_the_replay_route_the_same_request_expires_the_reservation(application, client):
    hold_all(application, "abc")
    body = {"now": application.clock.now_ms() + 60_000}
    assert client.post("/reservations/abc/replay-alarm", json=body).json["changed"] is True


@pytest.mark.parametrize("path", BOTH_WAYS)
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreBusy("the file is locked"), 503, "store-busy"),
        (Overloaded("40 wait"), 503, "overloaded"),
        (StoreStopped("it stops"), 503, "shutting-down"),
        (DamagedLog("events are gone"), 503, "damaged-log"),
        (StoreFull("no room"), 507, "store-full"),
        (StoreDamaged("page 7"), 500, "store-damaged"),
        (VersionConflict("it moved on"), 409, "version-conflict"),
        (NotDue(7), 409, "not-due"),
        (InvalidNow("no clock"), 400, "invalid-now"),
        (UndecodableEvent("garbage"), 500, "undecodable-event"),
    ],
)
def test_an_error_of_ours_is_a_problem_with_its_status_code_and_sentence(
    failing, path, error, status, code
):
    failing.error = error
    answer = create_app(failing).test_client().post(path, json={"ttlSeconds": 5})
    problem = assert_problem(answer, status, code)
    assert problem["detail"].lower() == f"{error.public}.".lower()
    assert answer.headers.get("Retry-After") == ("1" if status == 503 else None)


@pytest.mark.parametrize("path", BOTH_WAYS)
def test_an_unforeseen_error_is_told_to_the_log_and_not_to_the_client(failing, caplog, path):
    failing.error = RuntimeError("secret in /etc/passwd")
    answer = create_app(failing).test_client().post(path, json={"ttlSeconds": 5})
    assert_problem(answer, 500, "internal-error")
    assert "secret" not in answer.text
    assert "RuntimeError" not in answer.text
    assert "secret in /etc/passwd" in caplog.text


@pytest.mark.parametrize("path", BOTH_WAYS)
def test_after_an_error_the_next_request_is_answered(failing, path):
    failing.error = RuntimeError("once")
    client = create_app(failing).test_client()
    assert client.post(path, json={"ttlSeconds": 5}).status_code == 500
    assert client.get(path).json["status"] == "missing"


def test_every_error_has_a_status_unless_only_the_command_line_meets_it():
    errors = errors_of_the_product()
    without = {error.__name__ for error in errors if error not in STATUS_OF}
    assert without == COMMAND_LINE_ERRORS
    assert set(STATUS_OF) <= errors


def test_no_error_of_the_command_line_is_defined_where_a_request_could_meet_it():
    modules = {
        error.__module__
        for error in errors_of_the_product()
        if error.__name__ in COMMAND_LINE_ERRORS
    }
    program = "import sys, api.http; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not modules & set(loaded.stdout.split())


def test_every_error_has_a_code_of_its_own():
    codes = Counter(error.code for error in errors_of_the_product())
    assert [code for code, count in codes.items() if count > 1] == []


def errors_of_the_product() -> set[type[ReservationExpiryError]]:
    """All subclasses of the root that any of our modules defines."""
    for room in (api, domain, infrastructure):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not module.name.endswith(".__main__"):  # which would run
                importlib.import_module(module.name)
    rooms = {api.__name__, domain.__name__, infrastructure.__name__}
    found = subclasses_of(ReservationExpiryError)
    return {error for error in found if error.__module__.startswith(tuple(rooms))}


def subclasses_of(error: type[ReservationExpiryError]) -> set[type[ReservationExpiryError]]:
    return {each for child in error.__subclasses__() for each in {child, *subclasses_of(child)}}
