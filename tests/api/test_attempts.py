"""The kept log of alarms: what became of each attempt, over HTTP."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from reservation_expiry.api.cli import main
from reservation_expiry.api.rendering import render_attempt
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreUnavailable
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.postgres.session import PostgresSession
from reservation_expiry.infrastructure.stores.sql.alarm_pages import AttemptsWanted
from reservation_expiry.infrastructure.stores.sqlite.session import SqliteSession
from reservation_expiry.infrastructure.stores.store import open_store
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.http import assert_problem, hold_all
from tests.support.objects import World
from tests.support.schedules import START, fail, go_on, story
from tests.support.server import url_of

EVERY = AttemptsWanted()
Ring = Callable[[], list[str]]


@pytest.fixture
def ring(application: ReservationApplication) -> Ring:
    """One pass of the alarm clock. The outcomes, the newest first."""

    def pass_over() -> list[str]:
        dispatcher = application.alarm_dispatcher
        dispatcher.settle(dispatcher.claim())
        return [row[5] for row in application.queries.attempts(EVERY, 100)]

    return pass_over


def attempts(client: FlaskClient, query: str = "") -> list[dict[str, Any]]:
    answer = client.get(f"/alarms/attempts{query}")
    assert answer.status_code == 200, answer.text
    return answer.json["attempts"]


def test_an_attempt_is_kept_with_the_expiry(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock, ring: Ring
) -> None:
    due_ms = application.hold("seat-1", 60).expires_at_ms
    assert attempts(client) == []
    clock.advance(60_250)
    assert ring() == ["ok"]
    assert attempts(client) == [
        {
            "at": due_ms + 250,
            "eventType": "alarm",
            "entrypoint": "Reservation",
            "name": "seat-1",
            "eventId": None,
            "scheduledTime": due_ms,
            "outcome": "ok",
            "isRetry": False,
            "retryCount": 0,
            "latenessMs": 250,
            "durationMs": None,
            "error": None,
        }
    ]


def test_retries_are_told_apart_from_first_attempts(
    application: ReservationApplication,
    client: FlaskClient,
    address: Address,
    clock: ManualClock,
    ring: Ring,
) -> None:
    hold_all(application, "good", "bad")
    spoilt = "UPDATE events SET state = x'00' WHERE originator_id = 'reservation/bad'"
    sql(address, spoilt)
    clock.advance(60_000)
    assert sorted(ring()) == ["ok", "retry"]
    clock.advance(10_000)
    assert ring()[0] == "retry"
    newest, *_ = attempts(client, "?name=bad")
    assert (newest["isRetry"], newest["retryCount"]) == (True, 1)
    assert newest["error"].startswith("UndecodableEvent: ")
    assert [a["name"] for a in attempts(client, "?retry=true")] == ["bad"]
    assert sorted(a["name"] for a in attempts(client, "?retry=false")) == ["bad", "good"]
    assert [a["name"] for a in attempts(client, "?outcome=ok")] == ["good"]
    assert attempts(client, "?outcome=parked") == []
    assert len(attempts(client, "?entrypoint=Reservation")) == 3
    assert attempts(client, "?entrypoint=Counter") == []


def test_an_alarm_that_was_begun_too_often_is_told_of_when_it_is_parked(
    application: ReservationApplication,
    client: FlaskClient,
    clock: ManualClock,
) -> None:
    application.hold("deadly", 60)
    for _ in range(8):  # as many processes end as they run it
        clock.advance(600_000)
        application.alarm_dispatcher.claim()
    (told,) = attempts(client)
    assert (told["name"], told["outcome"], told["retryCount"]) == ("deadly", "parked", 6)
    assert "was begun 7 times and not settled" in told["error"]


def test_pages_follow_each_other_without_a_gap(
    application: ReservationApplication, client: FlaskClient, clock: ManualClock, ring: Ring
) -> None:
    hold_all(application, *(f"seat-{number}" for number in range(7)))
    clock.advance(60_000)
    ring()
    seen, before = [], ""
    while True:
        page = client.get(f"/alarms/attempts?limit=3{before}").json
        seen += [attempt["name"] for attempt in page["attempts"]]
        if page["before"] is None:
            break
        before = f"&before={page['before']}"
    assert sorted(seen) == [f"seat-{number}" for number in range(7)]
    assert seen == [attempt["name"] for attempt in attempts(client)]


def test_the_newest_are_kept(address: Address, clock: ManualClock) -> None:
    open_store(address).migrate()
    application = ReservationApplication(address, clock, kept_attempts=3)
    application.start(alarms=False)
    try:
        for number in range(5):
            application.hold(f"seat-{number}", 60)
            clock.advance(60_000)
            application.alarm_dispatcher.settle(application.alarm_dispatcher.claim())
        application.sweep()
        kept = [row[1] for row in application.queries.attempts(EVERY, 100)]
    finally:
        application.stop()
    assert kept == [f"reservation/seat-{number}" for number in (4, 3, 2)]


def test_a_transaction_that_fails_keeps_nothing(
    application: ReservationApplication, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.hold("seat-1", 60)
    clock.advance(60_000)
    claims = application.alarm_dispatcher.claim()

    def fail(*_: object) -> None:
        raise StoreUnavailable("it is gone")

    with monkeypatch.context() as broken:
        for session in (SqliteSession, PostgresSession):
            broken.setattr(session, "commit", fail)
        application.alarm_dispatcher.settle(claims)
    assert application.queries.attempts(EVERY, 100) == []
    assert application.get("seat-1").status == "held"


@pytest.mark.parametrize(
    "query",
    [
        "outcome=",
        "entrypoint=%00",
        "before=%00",
        "outcome=best",
        "retry=yes",
        "limit=0",
        "name=a",
        "name=A/",
        "name=%00/x",
    ],
)
def test_a_parameter_that_is_none_is_refused(client: FlaskClient, query: str) -> None:
    answer = client.get(f"/alarms/attempts?{query}")
    assert answer.status_code == 400
    assert answer.json["detail"]


def test_any_entrypoint_and_cursor_may_be_asked_for(client: FlaskClient) -> None:
    for text in ("%25", "'", "x" * 5_000, "%ED%A0%80", "", "\U0001f39f"):
        assert attempts(client, f"?entrypoint={text}") == []
        assert attempts(client, f"?before={text}") == []


def test_states_tell_alarms_apart(
    application: ReservationApplication, client: FlaskClient, address: Address, clock: ManualClock
) -> None:
    def names(state: str) -> list[str]:
        found = client.get(f"/alarms?state={state}").json["alarms"]
        assert {alarm["state"] for alarm in found} <= {state}
        return [alarm["reservationId"] for alarm in found]

    hold_all(application, "taken", "given-up")
    clock.advance(60_000)
    sql(address, "UPDATE alarms SET next_run_time = NULL WHERE id = 'reservation/given-up'")
    application.alarm_dispatcher.claim()
    hold_all(application, "later")
    assert (names("claimed"), names("waiting")) == (["taken"], ["later"])
    assert (names("parked"), names("due")) == (["given-up"], [])
    clock.advance(30_000)  # its lease is over
    assert (names("claimed"), names("due")) == ([], ["taken"])


def test_one_alarm_is_re_driven_by_its_path(
    application: ReservationApplication, client: FlaskClient, address: Address
) -> None:
    hold_all(application, "abc")
    sql(address, "UPDATE alarms SET next_run_time = NULL")
    assert client.post("/alarms/abc/redrive").json == {"redriven": 1}
    assert_problem(client.post("/alarms/never/redrive"), 404, "alarm-not-found")
    assert_problem(client.post("/alarms/Counter/foo/redrive"), 404, "alarm-not-found")
    assert client.post("/alarms/a/b/c/redrive").status_code in (400, 404)


class Failing(DurableObject):
    async def alarm(self) -> None:
        if await self.ctx.storage.get("fails"):
            raise ValueError("on purpose")

    def arm(self, at_ms: int, fails: bool) -> None:
        self.ctx.storage.put("fails", fails)
        self.ctx.storage.setAlarm(at_ms)


class Again(DurableObject):
    """Sets its next alarm, which is on disk before it ends."""

    async def alarm(self) -> None:
        self.ctx.storage.setAlarm(self.ctx.now_ms() + 60_000)
        await self.ctx.storage.sync()

    def arm(self, at_ms: int) -> None:
        self.ctx.storage.setAlarm(at_ms)


async def kept(world: World) -> list[tuple[Any, ...]]:
    """Of each attempt, the newest first: (name, event, outcome, retries, error)."""
    page = await asyncio.to_thread(world.application.queries.attempts, EVERY, 100)
    shown = [render_attempt(row) for row in page]
    keys = ("name", "eventId", "outcome", "retryCount", "error")
    return [(a["entrypoint"], *(a[key] for key in keys)) for a in shown]


def test_attempts_at_objects_alarms_are_kept(address: Address) -> None:
    async def run() -> None:
        async with World(address, Failing, Again) as world:
            due_ms = world.clock.now_ms() + 1_000
            await world.stub("Failing", "bad").arm(due_ms, True)
            await world.advance(1_000)
            assert await kept(world) == [
                ("Failing", "bad", None, "retry", 0, "ValueError: on purpose")
            ]
            await world.stub("Failing", "good").arm(due_ms + 1, False)
            await world.advance(1)
            assert (await kept(world))[0] == ("Failing", "good", None, "ok", 0, None)
            await world.stub("Again").arm(due_ms + 2)
            await world.advance(1)
            await world.stub("Again").arm(due_ms + 900_000)
            assert (await kept(world))[0] == ("Again", "foo", None, "ok", 0, None)

    asyncio.run(run())


def test_attempts_at_a_schedules_events_are_kept(address: Address) -> None:
    async def steps(world: World, agenda: Any) -> None:
        await agenda.scheduleEvent("tea", START + 1_000)
        await agenda.scheduleEvent("bad", START + 2_000, payload="fail")
        await go_on(world, 3_000)
        found = [attempt for attempt in await kept(world) if attempt[2] is not None]
        assert found == [
            ("Agenda", "foo", "bad", "failed", 0, "RuntimeError: on purpose"),
            ("Agenda", "foo", "tea", "ok", 0, None),
        ]

    story(address, steps, fail=fail)


def test_the_command_line_tells_the_same(
    application: ReservationApplication, address: Address, clock: ManualClock, ring: Ring
) -> None:
    def told(*words: str) -> str:
        environment = {"RESERVATION_DATABASE": url_of(address)}
        result = CliRunner().invoke(main, ["alarms", "attempts", *words], env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout

    hold_all(application, "abc", "def")
    clock.advance(60_007)
    ring()
    assert re.search(r"abc +2027-\S+ +ok +7 ms +0", told())
    assert "abc" not in told("--name", "def")
    assert json.loads(told("--json", "--name", "def"))["latenessMs"] == 7
    assert "abc" not in told("--outcome", "parked")
