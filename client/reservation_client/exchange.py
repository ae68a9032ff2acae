"""One request, asked until it is answered: the same for both clients, and without I/O.

A generator yields what is to be sent, or how long is to be waited, and is sent the responses.
Commands carry a key, so that asking again never does a thing twice.
"""

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from reservation_client.errors import BY_CODE, ReservationError, Unavailable

ATTEMPTS = 5
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.1, 5.0


@dataclass(frozen=True)
class Call:
    """A request. `params` without value are left out."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    seconds: float


Steps = Generator[Call | Wait, httpx.Response | httpx.TransportError | None, Any]
"""Sent a response or why there is none for a Call, None for a Wait. Returns the JSON."""


def asked(call: Call) -> Steps:
    """Raises ReservationError."""
    wait, why = FIRST_WAIT_SECONDS, "it was not asked"
    for attempt in range(1, ATTEMPTS + 1):
        answer = yield call
        if isinstance(answer, httpx.Response):
            if answer.status_code != 503:
                return answered(answer)
            why = "it is not available"
            wait = max(wait, _retry_after(answer))
        else:
            why = f"it did not answer: {answer}"
        if attempt < ATTEMPTS:
            yield Wait(min(wait, MAX_WAIT_SECONDS) * random.uniform(0.5, 1.0))  # noqa: S311  no secret
            wait *= 2
    raise Unavailable(f"{call.method} {call.path}, {ATTEMPTS} times: {why}")


def answered(answer: httpx.Response) -> Any:
    """Its JSON. Raises the error that its problem document is of."""
    found = _json(answer)
    if answer.is_success:
        return found
    problem = found if isinstance(found, dict) else {}
    code = str(problem.get("code", ""))
    detail = problem.get("detail") or problem.get("error") or f"HTTP {answer.status_code}"
    raise BY_CODE.get(code, ReservationError)(
        str(detail),
        code=code,
        status=answer.status_code,
        hold=problem.get("hold"),
        items=tuple(problem.get("items", ())),
    )


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except json.JSONDecodeError:
        return None


def _retry_after(answer: httpx.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0
