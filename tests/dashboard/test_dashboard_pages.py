"""The dashboard as it is drawn by the server, without a browser."""

import asyncio
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from flask.testing import FlaskClient

from reservation_expiry.api.dashboard import overview as overview_module
from reservation_expiry.api.dashboard.filters import distance, utc
from reservation_expiry.api.http import create_app
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreUnavailable
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.http import hold_all
from tests.support.objects import World

OURS = {"Origin": "http://localhost"}
VIEWS = ("", "/reservations", "/objects", "/log", "/alarms", "/attempts", "/schedules", "/live")


class Words(HTMLParser):
    """A page's words, the markup left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.found.append(data)

    def __str__(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.found))


@pytest.fixture
def client(application: ReservationApplication) -> FlaskClient:
    return create_app(application).test_client()


@pytest.fixture(autouse=True)
def _uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page counts anew, for the clock here is not the one that counting goes by."""
    monkeypatch.setattr("reservation_expiry.api.dashboard.lists.COUNT_AGAIN_SECONDS", -1.0)
    monkeypatch.setattr("reservation_expiry.infrastructure.application.CENSUS_EVERY_SECONDS", -1.0)


def words(client: FlaskClient, path: str, status: int = 200) -> str:
    answer = client.get(f"/dashboard{path}")
    assert answer.status_code == status, answer.text
    assert answer.mimetype == "text/html"
    return str(Words(answer.text))


def ring(application: ReservationApplication) -> None:
    application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())


@pytest.mark.parametrize("view", [v for v in VIEWS if v != "/schedules"])
def test_an_empty_service_says_so_on_every_page(client: FlaskClient, view: str) -> None:
    assert re.search("[Nn]o |[Nn]othing|0 of 0", words(client, view))


def test_the_overview_counts_what_there_is(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock, address: Address
) -> None:
    hold_all(application, "abc", "def", "ghi")
    clock.advance(60_040)
    shown = words(client, "")
    assert "Open holds 3" in shown
    assert "Overdue alarms 3" in shown
    sql(address, "UPDATE alarms SET next_run_time = NULL WHERE id = 'reservation/abc'")
    ring(application)
    shown = words(client, "")
    assert "Open holds 1 Overdue alarms 0 Parked alarms 1" in shown
    assert "Head of the log 8" in shown
    assert "under 50 ms 2" in shown
    assert re.search(r"Held Ended \S+ \S+ 0 2 \S+ \S+ 3 0", shown), shown


def test_what_is_too_much_to_tell_apart_is_said_to_be(
    application: ReservationApplication, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_module, "TOLD_APART", 3)
    hold_all(application, "abc", "def")
    assert "4 events: too many to tell apart" in words(client, "")


def test_reservations_are_searched_filtered_and_sorted(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock
) -> None:
    def names(query: str) -> list[str]:
        return re.findall(
            r"reservations/([a-z0-9-]+)\"", client.get(f"/dashboard/reservations{query}").text
        )

    application.hold("a-late", 900)
    application.hold("b-soon", 60)
    application.hold("c-mid", 300)
    assert names("") == ["a-late", "b-soon", "c-mid"]
    assert names("?sort=deadline") == ["b-soon", "c-mid", "a-late"]
    assert names("?prefix=b") == ["b-soon"]
    clock.advance(60_000)
    assert "overdue" in words(client, "/reservations?prefix=b")
    ring(application)
    assert names("?status=expired") == ["b-soon"]
    assert names("?status=held&sort=deadline") == ["c-mid", "a-late"]


@pytest.mark.parametrize("sort", ["name", "deadline"])
def test_the_next_page_goes_on_where_the_last_one_ended(
    application: ReservationApplication, client: FlaskClient, sort: str
) -> None:
    hold_all(application, *(f"seat-{number:03}" for number in range(120)))
    seen: list[str] = []
    path: str | None = f"/dashboard/reservations?sort={sort}"
    while path is not None:
        page = client.get(path).text
        seen += re.findall(r"reservations/(seat-\d+)\"", page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        path = None if following is None else following[1].replace("&amp;", "&")
    assert seen == [f"seat-{number:03}" for number in range(120)]


def test_any_version_of_a_reservation_is_shown_with_what_it_changed(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock
) -> None:
    held = application.hold("seat-1", 60)
    clock.advance(60_000)
    ring(application)
    first = words(client, "/reservations/seat-1?version=1")
    assert "After version 1 of 3" in first
    assert f"expiresAt (changed) {utc(held.expires_at_ms)}" in first
    last = words(client, "/reservations/seat-1")
    assert "After version 3 of 3" in last
    assert "status (changed) expired held" in last
    assert "expirationCount (changed) 1 0" in last
    assert "Now expired" in last
    assert "3 · Expired" in last
    assert re.search(r"Ended Outcome .* ok 0 ms at once 0", last)


def test_a_version_beyond_the_newest_is_the_newest(
    application: ReservationApplication, client: FlaskClient
) -> None:
    application.hold("seat-1", 60)
    assert "After version 2 of 2" in words(client, f"/reservations/seat-1?version={2**53 - 1}")


def test_a_history_that_cannot_be_read_says_which_event(
    application: ReservationApplication, client: FlaskClient, address: Address
) -> None:
    application.hold("seat-1", 60)
    sql(address, "UPDATE events SET state = x'00' WHERE originator_version = 1")
    assert "The log does not tell it" in words(client, "/reservations/seat-1")


def test_the_log_at_a_moment_tells_how_all_stood(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock
) -> None:
    hold_all(application, "abc", "def")
    application.hold("abc", 120)  # moves it
    clock.advance(60_000)
    ring(application)
    assert re.search(r"held 1 expired 1 ", words(client, "/log"))
    assert re.search(r"After 2 of 7 .* held 1 expired 0 ", words(client, "/log?at=2"))
    assert re.search(r"held 0 expired 0 ", words(client, "/log?at=0"))
    compared = words(client, "/log?at=7&since=4")
    assert re.search(r"held 1 2 -1 expired 1 0 \+1 ", compared)
    assert re.search(r"abc moved until 2027-\S+ \S+, was until 2027", compared)
    assert "def ended expired at 2027" in compared


class Notes(DurableObject):
    def put(self, key: str, value: Any) -> None:
        self.ctx.storage.put(key, value)

    def forget(self, key: str) -> None:
        self.ctx.storage.delete(key)


def test_an_objects_storage_is_shown_at_any_version(address: Address) -> None:
    async def run() -> tuple[str, str, str]:
        async with World(address, Notes) as world:
            notes = world.stub("Notes", "<script>alert(1)</script>")
            await notes.put("colour", "red")
            await notes.put("colour", "blue")
            await notes.forget("colour")
            client = create_app(world.application).test_client()
            path = "/objects/Notes/<script>alert(1)</script>"
            listed = await asyncio.to_thread(client.get, "/dashboard/objects?class=Notes")
            shown = [
                await asyncio.to_thread(words, client, f"{path}?version={version}")
                for version in (2, 3)
            ]
            return listed.text, shown[0], shown[1]

    listed, second, third = asyncio.run(run())
    assert "<script>alert" not in listed
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in listed
    assert 'storage: colour (changed) "blue" "red"' in second
    assert 'storage: colour (changed) none "blue"' in third


def test_a_parked_alarm_is_re_driven_by_its_button(
    application: ReservationApplication, client: FlaskClient, address: Address
) -> None:
    application.hold("seat-1", 60)
    sql(address, "UPDATE alarms SET next_run_time = NULL")
    assert "Re-drive seat-1" in words(client, "/alarms?state=parked")
    answer = client.post("/dashboard/alarms/redrive", data={"name": "seat-1"}, headers=OURS)
    assert answer.status_code == 303
    assert "It is re-driven" in client.get(answer.location).text
    assert "No alarm is parked" in words(client, "/alarms?state=parked")


def test_a_form_that_is_of_no_page_of_ours_is_refused(
    application: ReservationApplication, client: FlaskClient, address: Address
) -> None:
    application.hold("seat-1", 60)
    sql(address, "UPDATE alarms SET next_run_time = NULL")
    answer = client.post("/dashboard/alarms/redrive", data={"name": "seat-1"})
    assert answer.status_code == 403
    assert "a page of this dashboard" in answer.text
    assert sql(address, "SELECT next_run_time FROM alarms") == [(None,)]


def test_a_slash_at_the_end_leads_to_the_overview(client: FlaskClient) -> None:
    assert client.get("/dashboard/").location == "/dashboard"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/reservations/never-held", 404),
        ("/reservations/A", 400),
        ("/reservations?prefix=%00", 400),
        ("/reservations?sort=deadline&prefix=a", 400),
        ("/reservations?offset=99999999", 400),
        ("/objects?prefix=%00", 400),
        ("/objects/Counter/never", 404),
        ("/log?at=5&since=9", 400),
        ("/log?at=-1", 400),
        ("/alarms?state=none", 400),
        ("/attempts?outcome=none", 400),
        ("/attempts?name=%3Cscript%3E", 400),
        ("/nowhere/at/all", 404),
    ],
)
def test_what_is_not_there_or_not_allowed_is_told_on_a_page(
    client: FlaskClient, path: str, status: int
) -> None:
    shown = words(client, path, status)
    assert "To the overview" in shown


def test_a_database_that_does_not_answer_is_told_on_a_page(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("127.0.0.1:5432 is gone, s3cret")

    monkeypatch.setattr(Queries, "head", fail)
    shown = words(client, "", 503)
    assert "Service Unavailable" in shown
    assert "s3cret" not in shown


def test_no_page_lets_another_script_run_or_asks_another_host(
    application: ReservationApplication, client: FlaskClient
) -> None:
    application.hold("seat-1", 60)
    for view in (*(v for v in VIEWS if v != "/schedules"), "/reservations/seat-1"):
        answer = client.get(f"/dashboard{view}")
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self'; ")
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert not re.search(r"<script(?! src=\"/dashboard/static/)", answer.text)
        assert not re.search(r"""(src|href|action)=["'](https?:)?//""", answer.text)
        assert " style=" not in answer.text
    for name in ("dashboard.css", "dashboard.js", "icon.svg"):
        with client.get(f"/dashboard/static/{name}") as file:
            assert not re.search("https?://(?!www.w3.org/2000/svg)", file.text), name


@pytest.mark.parametrize(
    ("ms", "now_ms", "said"),
    [
        (5_999, 0, "in 5 s"),
        (0, 500, "0 s ago"),
        (0, 61_000, "1 min ago"),
        (7_200_000, 0, "in 2 h"),
        (0, 172_800_000, "2 d ago"),
    ],
)
def test_distances_are_told_in_their_largest_unit(ms: int, now_ms: int, said: str) -> None:
    assert distance(ms, now_ms) == said


@pytest.mark.parametrize("ms", [-1, 10**18])
def test_an_instant_that_is_no_date_is_told_as_its_number(ms: int) -> None:
    assert utc(ms) == str(ms)
