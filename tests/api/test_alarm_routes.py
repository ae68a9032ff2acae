"""Alarms over HTTP, and the end of the log."""

import pytest
from flask.testing import FlaskClient

from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.http import assert_problem, hold_all


def alarms(client: FlaskClient, query: str = "") -> list[tuple[str, str]]:
    answer = client.get(f"/alarms{query}")
    assert answer.status_code == 200, answer.text
    return [(alarm["reservationId"], alarm["state"]) for alarm in answer.json["alarms"]]


def test_alarms_are_listed_the_earliest_first(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock
) -> None:
    application.hold("late", 600)
    application.hold("soon", 60)
    assert alarms(client) == [("soon", "waiting"), ("late", "waiting")]
    assert alarms(client, "?limit=1") == [("soon", "waiting")]
    assert alarms(client, "?state=due") == []
    clock.advance(60_000)
    assert alarms(client, "?state=due") == [("soon", "due")]


def test_what_is_parked_is_re_driven(
    application: ReservationApplication, client: FlaskClient, address: Address
) -> None:
    hold_all(application, "abc", "def", "ghi")
    sql(address, "UPDATE alarms SET next_run_time = NULL")
    assert len(alarms(client, "?state=parked")) == 3
    assert client.post("/alarms/redrive", json={"name": "abc"}).json == {"redriven": 1}
    assert len(alarms(client, "?state=parked")) == 2
    assert client.post("/alarms/redrive", json={"all": True}).json == {"redriven": 2}
    assert alarms(client, "?state=parked") == []
    answer = client.post("/alarms/redrive", json={"name": "never"})
    assert "never has no alarm" in assert_problem(answer, 404, "alarm-not-found")["detail"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"name":1}', b'{"all":false}', b'{"name":"a","all":true}',
             b'{"nam":"a"}', b"\xff"]
)  # fmt: skip
def test_a_body_that_names_no_alarm_is_refused(client: FlaskClient, body: bytes) -> None:
    assert_problem(client.post("/alarms/redrive", data=body), 400, "invalid-parameter")


@pytest.mark.parametrize("query", ["state=all", "state=", "limit=0", "limit=1001"])
def test_a_parameter_that_is_none_is_refused(client: FlaskClient, query: str) -> None:
    assert_problem(client.get(f"/alarms?{query}"), 400, "invalid-parameter")


def test_the_end_of_the_log_is_asked_for_by_last(
    application: ReservationApplication, client: FlaskClient
) -> None:
    page = client.get("/events?last=5").json
    assert (page["events"], page["next"]) == ([], 0)
    hold_all(application, "abc", "def")
    for last, positions in ((0, []), (1, [4]), (3, [2, 3, 4]), (9, [1, 2, 3, 4])):
        answer = client.get(f"/events?last={last}").json
        assert [event["position"] for event in answer["events"]] == positions
        assert answer["next"] == 4
    assert_problem(client.get("/events?last=1&after=1"), 400, "invalid-parameter")
    assert_problem(client.get("/events?last=-1"), 400, "invalid-parameter")
