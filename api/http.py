"""The HTTP door: a Flask app over an application that somebody else starts and stops.

It is a plain WSGI app with every route of the service. In front of it, where we serve it
ourselves, is `front.py`.
"""

from http import HTTPStatus

from flask import Flask, Response
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from reservation_expiry.api.alarm_routes import add_alarm_routes
from reservation_expiry.api.contract import Contract, add_contract_routes
from reservation_expiry.api.dashboard.sessions import Sessions
from reservation_expiry.api.dashboard.views import dashboard
from reservation_expiry.api.hold_routes import DEFAULT_LONGEST_SECONDS
from reservation_expiry.api.holds import add_hold_routes
from reservation_expiry.api.metrics import Metrics, add_metrics_route
from reservation_expiry.api.openapi import add_openapi_route
from reservation_expiry.api.paths import NormalisedPaths
from reservation_expiry.api.problems import problem, problem_of, too_large, unexpected
from reservation_expiry.api.read_routes import add_read_routes
from reservation_expiry.api.schedules import Schedules, add_schedule_routes
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.address import DEFAULT_NAMESPACE


def create_app(
    application: ReservationApplication,
    *,
    replay_route: bool = True,
    schedules: Schedules | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    longest_hold_seconds: int = DEFAULT_LONGEST_SECONDS,
    sessions: Sessions | None = None,
    metrics: Metrics | None = None,
) -> Flask:
    """The app. Nothing starts here; `application` must run before requests come.

    Without `schedules` there are no routes for them. With `sessions` people sign in to the
    dashboard.

    `replay_route` false leaves out `/reservations/<id>/replay-alarm`, which then answers
    as any unknown path does.
    """
    app = Flask("reservation-expiry", static_folder=None)
    app.url_map.strict_slashes = True
    app.url_map.merge_slashes = False
    app.url_map.redirect_defaults = False
    contract = Contract(application)
    add_contract_routes(app, contract, replay_route=replay_route)
    add_read_routes(app, application, namespace)
    add_alarm_routes(app, application)
    add_hold_routes(app, application, longest_hold_seconds)
    add_openapi_route(app)
    add_metrics_route(app, metrics or Metrics(application))
    if schedules is not None:
        add_schedule_routes(app, schedules)
    app.register_blueprint(dashboard(application, schedules, namespace, sessions))
    app.register_error_handler(ReservationExpiryError, problem_of)
    app.register_error_handler(HTTPException, _http_problem)
    app.register_error_handler(Exception, unexpected)
    # Where Flask has such things put.
    app.wsgi_app = NormalisedPaths(app.wsgi_app)  # type: ignore[method-assign]
    return app


def _http_problem(error: HTTPException) -> Response:
    if isinstance(error, RequestEntityTooLarge):
        return too_large()
    status = HTTPStatus(error.code or 500)
    code = status.phrase.lower().replace(" ", "-")
    response = problem(status, code, error.description or status.phrase)
    valid_methods = getattr(error, "valid_methods", None)
    if valid_methods:
        response.headers["Allow"] = ", ".join(sorted(valid_methods))
    return response
