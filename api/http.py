"""The HTTP door: a Flask app over an application that somebody else starts and stops."""

import logging
from http import HTTPStatus

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from api.contract import add_contract_routes
from api.paths import NormalisedPaths
from api.problems import problem, problem_of
from api.questions import add_question_routes
from domain.errors import ReservationExpiryError
from infrastructure.application import ReservationApplication
from infrastructure.settings import BODY_LIMIT_BYTES

logger = logging.getLogger(__name__)


def create_app(application: ReservationApplication, *, replay_route: bool = True) -> Flask:
    """The app. Nothing starts here; `application` must run before requests come.

    `replay_route` false leaves out `/reservations/<id>/replay-alarm`, which then answers
    as any unknown path does.
    """
    app = Flask("reservation-expiry", static_folder=None)
    app.url_map.strict_slashes = True
    app.url_map.merge_slashes = False
    app.url_map.redirect_defaults = False
    add_contract_routes(app, application, replay_route=replay_route)
    add_question_routes(app, application)
    app.register_error_handler(ReservationExpiryError, problem_of)
    app.register_error_handler(HTTPException, _http_problem)
    app.register_error_handler(Exception, _unexpected)
    app.wsgi_app = NormalisedPaths(app.wsgi_app)
    return app


def _http_problem(error: HTTPException) -> Response:
    status = HTTPStatus(error.code or 500)
    code = status.phrase.lower().replace(" ", "-")
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return problem(status, code, f"A body may have at most {BODY_LIMIT_BYTES} bytes.")
    response = problem(status, code, error.description or status.phrase)
    valid_methods = getattr(error, "valid_methods", None)
    if valid_methods:
        response.headers["Allow"] = ", ".join(sorted(valid_methods))
    return response


def _unexpected(error: Exception) -> Response:
    logger.exception("a request failed unexpectedly", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "Something unforeseen went wrong; the server's log says what.",
    )
