"""What the HTTP door offers beyond the recorded contract: health, and problem documents.

On a manual clock, over Flask's test client. Lists and histories are in test_read_routes.py,
the contract itself in tests/contract/.
"""

import importlib
import pkgutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from reservation_expiry import api, domain, infrastructure
from reservation_expiry.api.http import create_app
from reservation_expiry.api.problems import STATUS_OF
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
from tests.support.http import QUESTIONS, assert_problem, hold_all
from tests.support.server import wait_for

BAD_ID = {"error": "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."}
# The same request answered by the shortcut in front of Flask, and by Flask.
BOTH_WAYS = ("/reservations/abc", "/x/../reservations/abc")

# Errors of commands that stop before there is a server, or work without one. No request
# can meet them, so they need no status; a test below holds that to be so.
COMMAND_LINE_ERRORS = {
    "InvalidUrl",
    "ServiceRefused",
    "ServiceUnreachable",
    "CannotListen",
    "CannotServe",
    "DatabaseInUse",
    "FileRefused",
    "WorkerRefused",
}


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
    program = "import sys, reservation_expiry.api.http; print(*sys.modules)"
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
