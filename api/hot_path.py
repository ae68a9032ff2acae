"""The shortcut for the two requests that a busy service is made of.

`GET` and `POST /reservations/<id>` spend most of their time, if they go through Flask,
on contexts, signals and URL maps that they do not use (docs/performance.md has the
figures). They are answered here, by the same functions that Flask's routes call; all
other requests, and these two whenever anything is unusual about them, go on to Flask.
"""

import re
from collections.abc import Callable
from typing import Any

from werkzeug.exceptions import RequestEntityTooLarge

from api.contract import Contract
from api.paths import WsgiApp
from api.problems import problem_of, too_large, unexpected
from domain.errors import ReservationExpiryError
from domain.reservation import NAME_PATTERN

_PATH = re.compile(f"/reservations/({NAME_PATTERN})")
_STATUS_LINES = {200: "200 OK", 201: "201 Created", 400: "400 Bad Request"}


class HotPath:
    """WSGI middleware in front of the Flask app."""

    def __init__(self, contract: Contract, app: WsgiApp) -> None:
        self._contract = contract
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        found = _PATH.fullmatch(environ["PATH_INFO"])
        if found is None or environ["REQUEST_METHOD"] not in ("GET", "POST"):
            return self._app(environ, start_response)
        try:
            status, body = self._contract.reservation(environ, found[1])
        except ReservationExpiryError as error:
            return problem_of(error)(environ, start_response)
        except RequestEntityTooLarge:
            return too_large()(environ, start_response)
        except Exception as error:
            return unexpected(error)(environ, start_response)
        start_response(
            _STATUS_LINES[status],
            [("Content-Type", "application/json"), ("Content-Length", str(len(body)))],
        )
        return [body]
