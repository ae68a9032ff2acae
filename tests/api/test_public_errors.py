"""What clients are told has no host, port, user, path or driver's words; the log has them."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

import reservation_expiry.infrastructure.errors
from reservation_expiry.api import problems
from reservation_expiry.api.http import create_app
from reservation_expiry.api.worker import _problem
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import (
    DatabaseRefused,
    LogDeleted,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from reservation_expiry.infrastructure.stores.postgres.database import (
    translate as translate_of_a_server,
)
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.server import wait_for

PRIVATE = "host=10.1.2.3 port=5432 user=app: /srv/data/reservations.db: FATAL: no pg_hba.conf entry"
SECRETS = ("10.1.2.3", "5432", "app", "/srv", "FATAL", "pg_hba")
REQUESTS = [
    ("GET", "/reservations/seat-1"),
    ("POST", "/reservations/seat-1"),
    ("POST", "/x/../reservations/seat-1"),
    ("POST", "/reservations/seat-1/replay-alarm"),
    ("GET", "/reservations"),
    ("GET", "/reservations/seat-1/events"),
    ("GET", "/events"),
    ("GET", "/readyz"),
]


@pytest.fixture(autouse=True)
def _said_nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "_told", {})


def errors() -> Iterator[type[StoreError | DatabaseRefused]]:
    for _, found in inspect.getmembers(reservation_expiry.infrastructure.errors, inspect.isclass):
        if found is LogDeleted:
            continue  # has an answer of its own, which says no more than that
        if issubclass(found, StoreError | DatabaseRefused):
            yield found


@pytest.mark.parametrize("error", list(errors()), ids=lambda error: error.__name__)
def test_f69_the_sentence_for_clients_is_the_classs_and_the_log_has_the_rest(
    error: type[StoreError | DatabaseRefused], caplog: pytest.LogCaptureFixture
) -> None:
    for answer in (problems.problem_of(error(PRIVATE)).get_data(as_text=True),
                   (_problem(error(PRIVATE)).body or b"").decode()):  # fmt: skip
        assert not any(secret in answer for secret in SECRETS), answer
        assert re.search(r'"detail":"[A-Z][^"]+\."', answer)
    assert f"requests are answered {error.code}: {PRIVATE}" in caplog.text
    assert len(caplog.records) == 1, "once, and not for each request"


@pytest.fixture
def application_of_a_proxy(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ReservationApplication, Proxy]]:
    monkeypatch.setattr(
        "reservation_expiry.infrastructure.stores.postgres.session.ASK_OUTCOME_SECONDS", 0.3
    )
    address = postgres.address("public_errors")
    prepare(address)
    with Proxy(postgres.port) as proxy:
        through = PostgresAddress(address.url.replace(f":{postgres.port}/", f":{proxy.port}/"))
        application = ReservationApplication(through)
        application.start()
        yield application, proxy
        application.stop()


@pytest.mark.real_time
def test_f69_while_the_server_is_away_no_answer_has_its_address(
    application_of_a_proxy: tuple[ReservationApplication, Proxy],
    caplog: pytest.LogCaptureFixture,
) -> None:
    application, proxy = application_of_a_proxy
    client = create_app(application).test_client()
    wait_for(lambda: application.readiness().ready, 5)
    proxy.refusing = True
    proxy.cut()
    for method, path in REQUESTS:
        answer = ask(client, method, path)
        assert answer.status_code == 503, (method, path, answer.text)
        assert answer.headers["Retry-After"]
        told = answer.text.replace(path, "")
        for secret in ("127.0.0.1", str(proxy.port), "postgres", "server closed", "connection"):
            assert secret not in told, (method, path, answer.text)
    assert "server closed" in caplog.text or "connection failed" in caplog.text
    assert str(proxy.port) in caplog.text


@pytest.mark.usefixtures("database_path")
def test_f69_a_file_that_cannot_be_opened_is_told_without_its_path(
    application: ReservationApplication, database_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = create_app(application).test_client()
    application._store.close()
    application._store._closed = False
    application._store.path = database_path.parent / "gone" / "reservations.db"
    for path in ("/reservations/seat-1", "/events", "/readyz"):
        answer = client.get(path)
        assert answer.status_code == 503
        for secret in (str(database_path.parent), "unable to open", "gone"):
            assert secret not in answer.text
    assert "unable to open database file" in caplog.text


def test_f69_the_reasons_of_readyz_are_words_for_anybody(
    application: ReservationApplication,
) -> None:
    client = create_app(application).test_client()
    for error in (StoreUnavailable(PRIVATE), StoreBusy(PRIVATE), RuntimeError(PRIVATE)):
        application.writer.last_error = error
        answer = client.get("/readyz")
        assert "the last transaction failed: " in answer.text
        assert not any(secret in answer.text for secret in SECRETS)


def test_f69_the_drivers_words_are_kept_for_the_log() -> None:
    import psycopg

    ours = translate_of_a_server(psycopg.OperationalError(f"connection failed: {PRIVATE}"))
    assert PRIVATE in str(ours)
    assert ours.public == "the database cannot be used now: try again"


def ask(client: FlaskClient, method: str, path: str):
    body = {"ttlSeconds": 60, "now": 1} if method == "POST" else None
    return client.open(path, method=method, json=body)
