"""A time in seconds where milliseconds are wanted: refused where the interface is ours."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from reservation_expiry.api.cli import main
from reservation_expiry.api.http import create_app
from reservation_expiry.domain.alarm import SECONDS_BELOW, SECONDS_FROM, looks_like_seconds
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.stores.address import Address
from tests.support.loops import schedules_of
from tests.support.objects import World

SECONDS = 1_800_000_000


@pytest.fixture
def client(application: ReservationApplication) -> Iterator[FlaskClient]:
    with schedules_of(application) as schedules:
        yield create_app(application, schedules=schedules).test_client()


@pytest.mark.parametrize(
    ("number", "is_seconds"),
    [
        (1, False),
        (SECONDS_FROM - 1, False),
        (SECONDS_FROM, True),
        (SECONDS, True),
        (SECONDS_BELOW - 1, True),
        (SECONDS_BELOW, False),
        (SECONDS * 1000, False),
    ],
)
def test_f56_seconds_are_told_from_milliseconds_and_from_long_ago(
    number: int, is_seconds: bool
) -> None:
    assert looks_like_seconds(number) == is_seconds


@pytest.mark.parametrize("run_at", [SECONDS_FROM, SECONDS, SECONDS_BELOW - 1])
def test_f56_a_schedule_refuses_seconds_and_says_milliseconds(
    run_at: int, client: FlaskClient
) -> None:
    answer = client.put("/schedules/a/events/e", data=json.dumps({"runAt": run_at}))
    assert answer.status_code == 400
    assert f"milliseconds, and {run_at} is what a time in seconds" in answer.json["detail"]
    assert client.get("/schedules/a").json["events"] == []


def test_f56_a_time_long_ago_still_means_at_once(client: FlaskClient) -> None:
    assert client.put("/schedules/a/events/e", data=json.dumps({"runAt": 1})).status_code == 201


@pytest.mark.parametrize(
    "command",
    [
        ("schedule", "put", "a", "e", "--at", str(SECONDS)),
        ("show", "seat-1", "--at", str(SECONDS)),
        ("log", "replay", "seat-1", "--now", str(SECONDS)),
        ("list", "--due-before", str(SECONDS)),
    ],
    ids=lambda command: command[0],
)
def test_f56_the_command_line_refuses_seconds(command: tuple[str, ...], database_path: Any) -> None:
    done = CliRunner().invoke(main, [*command, "--database", str(database_path)])
    assert done.exit_code == 2
    assert f"give {SECONDS}000" in done.output


def test_f56_replay_alarm_takes_them_as_the_original_did_and_warns(
    client: FlaskClient, application: ReservationApplication, caplog: pytest.LogCaptureFixture
) -> None:
    application.hold("seat-1", 5)
    answer = client.post("/reservations/seat-1/replay-alarm", data=f'{{"now":{SECONDS}}}')
    assert (answer.status_code, answer.json["changed"]) == (200, False)
    assert f"now = {SECONDS} ms: were seconds meant?" in caplog.text


@pytest.mark.parametrize(("time", "warns"), [(SECONDS, True), (SECONDS + 0.5, True), (1, False)])
def test_f56_set_alarm_takes_them_as_the_original_did_and_warns(
    time: float, warns: bool, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    class Setting(DurableObject):
        async def set(self) -> Any:
            self.ctx.storage.setAlarm(time)
            return await self.ctx.storage.getAlarm()

        def alarm(self) -> None: ...

    async def story() -> None:
        async with World(address, Setting) as world:
            assert await world.stub("Setting").set() == world.clock.now_ms()

    caplog.set_level(logging.WARNING)
    asyncio.run(story())
    assert ("were seconds meant?" in caplog.text) == warns
