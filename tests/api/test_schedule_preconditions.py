"""Preconditions and tags of scheduled events over HTTP; and the same PUT again."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask.testing import FlaskClient

from reservation_expiry.api.http import create_app
from reservation_expiry.domain import alarm as alarm_rules
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from tests.support.clock import ManualClock
from tests.support.loops import schedules_of
from tests.support.server import wait_for

EVENT = "/schedules/agent/events/report"
LATER = 1_900_000_000_000


@pytest.fixture
def client(application: ReservationApplication) -> Iterator[FlaskClient]:
    with schedules_of(application) as schedules:
        yield create_app(application, schedules=schedules).test_client()


def put(client: FlaskClient, path: str = EVENT, headers: Any = None, **body: Any) -> Any:
    return client.put(path, data=json.dumps(body), headers=headers)


@pytest.fixture
def tag(client: FlaskClient) -> str:
    """That of an event that is there."""
    return put(client, runAt=LATER, payload=1).headers["ETag"]


def refused(answer: Any) -> bool:
    return answer.status_code == 412 and answer.json["code"] == "precondition-failed"


def test_f40_a_stale_if_match_changes_nothing(client: FlaskClient, tag: str) -> None:
    current = put(client, headers={"If-Match": tag}, runAt=LATER, payload=2)
    assert current.status_code == 200
    before = client.get(EVENT).json
    assert refused(put(client, headers={"If-Match": tag}, runAt=LATER, payload=3))
    assert refused(client.delete(EVENT, headers={"If-Match": tag}))
    assert refused(client.get(EVENT, headers={"If-Match": tag}))
    assert client.get(EVENT).json == before
    assert client.delete(EVENT, headers={"If-Match": current.headers["ETag"]}).status_code == 204


def test_f40_if_none_match_star_makes_and_never_replaces(client: FlaskClient) -> None:
    new = {"If-None-Match": "*"}
    assert put(client, headers=new, runAt=LATER).status_code == 201
    assert refused(put(client, headers=new, runAt=LATER + 1))
    assert refused(client.delete(EVENT, headers=new))
    assert client.get(EVENT).json["revision"] == 1


def test_f40_if_match_star_replaces_and_never_makes(client: FlaskClient) -> None:
    there = {"If-Match": "*"}
    assert refused(put(client, headers=there, runAt=LATER))
    put(client, runAt=LATER)
    assert put(client, headers=there, runAt=LATER + 1).status_code == 200


def test_f40_lists_and_weak_tags(client: FlaskClient, tag: str) -> None:
    assert refused(put(client, headers={"If-Match": f"W/{tag}"}, runAt=LATER))
    assert refused(put(client, headers={"If-None-Match": f'"x", W/{tag}'}, runAt=LATER))
    assert put(client, headers={"If-Match": f'"x", {tag}'}, runAt=LATER + 1).status_code == 200
    current = client.get(EVENT).headers["ETag"]
    assert client.get(EVENT, headers={"If-None-Match": f"W/{current}"}).status_code == 304


def test_f40_a_condition_on_what_is_not_there_is_a_404_where_there_would_be_one(
    client: FlaskClient,
) -> None:
    for headers in ({"If-Match": '"x"'}, {"If-Match": "*"}):
        assert client.delete(EVENT, headers=headers).status_code == 404
        assert client.get(EVENT, headers=headers).status_code == 404


def test_f40_what_is_wrong_without_conditions_is_wrong_with_them(
    client: FlaskClient, tag: str
) -> None:
    assert put(client, headers={"If-Match": '"x"'}, runAt=0).status_code == 400
    assert client.post(f"{EVENT}/redrive", headers={"If-Match": '"x"'}).status_code == 409


@pytest.mark.parametrize("header", ["", ",", '"unclosed'])
def test_f40_a_header_that_names_nothing_is_400(header: str, client: FlaskClient, tag: str) -> None:
    answer = put(client, headers={"If-Match": header}, runAt=LATER + 1)
    assert answer.status_code == 400
    assert "If-Match must be" in answer.json["detail"]


def test_f40_of_many_who_replace_what_they_have_seen_one_does(
    client: FlaskClient, tag: str
) -> None:
    def replace(number: int) -> int:
        own = client.application.test_client()
        return put(own, headers={"If-Match": tag}, runAt=LATER, payload=number).status_code

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(replace, range(2, 34)))
    assert (statuses.count(200), statuses.count(412)) == (1, 31)


def broken(self: Any, event: Any) -> None:
    raise RuntimeError("on purpose")


def test_f40_the_tag_changes_when_the_representation_does_and_not_otherwise(
    client: FlaskClient,
    application: ReservationApplication,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(client, runAt=clock.now_ms(), repeatMs=1_000)
    first = client.get(EVENT)
    assert client.get(EVENT).headers["ETag"] == first.headers["ETag"]
    put(client, "/schedules/agent/events/other", runAt=LATER)  # of another event
    assert client.head(EVENT).headers["ETag"] == first.headers["ETag"]
    monkeypatch.setattr(EventSchedule, "process_event", broken)
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
    wait_for(lambda: client.get(EVENT).json["attempts"] == 1, 5)
    assert client.get(EVENT).headers["ETag"] != first.headers["ETag"]
    assert client.get(EVENT, headers={"If-None-Match": first.headers["ETag"]}).status_code == 200


def test_f40_redrive_honours_them_too(
    client: FlaskClient,
    application: ReservationApplication,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EventSchedule, "process_event", broken)
    monkeypatch.setattr(alarm_rules, "MAX_RETRIES", 0)
    put(client, runAt=clock.now_ms())
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
    parked = wait_for(lambda: (e := client.get(EVENT)).json["parked"] and e, 5)
    assert refused(client.post(f"{EVENT}/redrive", headers={"If-Match": '"x"'}))
    assert client.get(EVENT).json["parked"]
    done = client.post(f"{EVENT}/redrive", headers={"If-Match": parked.headers["ETag"]})
    assert (done.status_code, done.json["parked"]) == (200, False)
    assert done.headers["ETag"] == client.get(EVENT).headers["ETag"]


def test_f39_the_same_put_is_200_with_the_event_as_it_is(client: FlaskClient) -> None:
    body = {"runAt": 1, "repeatMs": 3_600_000, "payload": {"a": 1, "b": [True]}}
    first = put(client, **body)
    again = put(client, **body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json == first.json
    assert again.headers["ETag"] == first.headers["ETag"]
