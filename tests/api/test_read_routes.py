"""Lists, histories and the feed of the log, over Flask's test client on a manual clock."""

import sqlite3
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from reservation_expiry.api.read_routes import DEFAULT_LIMIT, MAX_LIMIT
from tests.support.http import assert_problem, hold_all, names_in

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
    assert (page["events"], page["next"]) == ([], 4)
    hold_all(application, "ccc")
    page = client.get("/events?after=4").json
    assert [event["position"] for event in page["events"]] == [5, 6]


def test_an_empty_log_is_an_empty_feed(idle_client):
    page = idle_client.get("/events").json
    assert (page["events"], page["next"]) == ([], 0)


def test_a_position_of_another_log_is_refused(client: FlaskClient) -> None:
    log_id = client.get("/events").json["logId"]
    assert client.get(f"/events?log={log_id}").status_code == 200
    refused = client.get("/events?log=0123456789abcdef")
    assert (refused.status_code, refused.json["code"]) == (409, "other-log")


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
