"""Requests and answers of the HTTP door that several test modules speak of."""

from http import HTTPStatus
from typing import Any

from werkzeug.test import TestResponse

from reservation_expiry.infrastructure.application import ReservationApplication

QUESTIONS = ("/healthz", "/readyz", "/reservations", "/reservations/abc/events", "/events")


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
