"""The dashboard's pages over HTTP: the blueprint with all its routes.

Every page works without the script, and asks nothing of another host. What is shown are
names and payloads of anybody: templates escape them, and the policy that goes with each page
lets no script run but ours.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from reservation_expiry.api.dashboard.filters import FILTERS
from reservation_expiry.api.dashboard.lists import ListPages
from reservation_expiry.api.dashboard.sessions import COOKIE, LASTS_SECONDS, Sessions
from reservation_expiry.api.dashboard.singles import SinglePages
from reservation_expiry.api.problems import STATUS_OF
from reservation_expiry.api.read_routes import InvalidParameter
from reservation_expiry.api.schedules import Schedules
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.domain.tokens import allows
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.tokens import Token

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)


def dashboard(
    application: ReservationApplication,
    schedules: Schedules | None,
    namespace: str,
    sessions: Sessions | None,
) -> Blueprint:
    """All its routes. With `sessions` one signs in with a token first."""
    pages = Blueprint(
        "dashboard",
        __name__,
        url_prefix="/dashboard",
        template_folder="templates",
        static_folder="static",
        static_url_path="/static",
    )
    lists, singles = ListPages(application, schedules), SinglePages(application, schedules)
    for path, method, view in _routes(lists, singles, SignIn(sessions)):
        pages.add_url_rule(
            path, view.__name__, view, methods=[method], provide_automatic_options=False
        )
    pages.before_request(refuse_posts_of_nobody)
    pages.after_request(with_policy)
    pages.register_error_handler(InvalidParameter, shown_mistake)
    pages.register_error_handler(ReservationExpiryError, shown_error)
    pages.register_error_handler(HTTPException, shown_http_error)
    pages.register_error_handler(404, shown_http_error)  # before the contract's own
    for name, found in FILTERS.items():
        pages.add_app_template_filter(found, name)

    def for_every_page() -> dict[str, Any]:
        token = signed_in()
        return {
            "namespace": namespace,
            "now_ms": application.clock.now_ms(),
            "token": token,
            "may_act": sessions is None or (token is not None and allows(token.scope, "admin")),
            "has_schedules": schedules is not None,
            "done": DONE.get(request.args.get("done", "")),
        }

    pages.context_processor(for_every_page)
    return pages


def _routes(
    lists: ListPages, singles: SinglePages, doors: "SignIn"
) -> tuple[tuple[str, str, Callable[..., Any]], ...]:
    return (
        ("", "GET", lists.overview),
        ("/", "GET", to_overview),
        ("/reservations", "GET", lists.reservations),
        ("/reservations/<name>", "GET", singles.reservation),
        ("/objects", "GET", lists.objects),
        ("/objects/<class_name>/<path:name>", "GET", singles.one_object),
        ("/log", "GET", singles.log),
        ("/alarms", "GET", lists.alarms),
        ("/alarms/redrive", "POST", lists.redrive),
        ("/attempts", "GET", lists.attempts),
        ("/schedules", "GET", lists.schedules),
        ("/schedules/<name>", "GET", singles.schedule),
        ("/schedules/<name>/redrive", "POST", singles.redrive_event),
        ("/live", "GET", lists.live),
        ("/login", "GET", doors.form),
        ("/login", "POST", doors.sign_in),
        ("/logout", "POST", doors.sign_out),
        ("/<path:rest>", "GET", no_such_page),
    )


DONE = {
    "redriven": "It is re-driven: its alarm runs as soon as it can.",
    "not-parked": "It has no alarm to run, or is not parked any more.",
}
"""What is said after a form was sent, by the word in the query: never the query's own."""


class SignIn:
    """With a token, and out again."""

    def __init__(self, sessions: Sessions | None) -> None:
        self._sessions = sessions

    def form(self) -> str | AnyResponse:
        if self._sessions is None:
            return to_overview()
        return render_template("login.html", is_wrong=False)

    def sign_in(self) -> AnyResponse | tuple[str, int]:
        if self._sessions is None:
            return to_overview()
        cookie = self._sessions.sign_in(request.form.get("token", ""))
        if cookie is None:
            return render_template("login.html", is_wrong=True), 401
        response = to_overview()
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=LASTS_SECONDS,
            path=request.root_path or "/",
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )
        return response

    def sign_out(self) -> AnyResponse:
        response = redirect(url_for("dashboard.form"), 303)
        response.delete_cookie(COOKIE, path=request.root_path or "/")
        return response


def signed_in() -> Token | None:
    """With whose token the page is asked for, if tokens are needed."""
    found: Token | None = request.environ.get("asgi.scope", {}).get("token")
    return found


def refuse_posts_of_nobody() -> tuple[str, int] | None:
    """Every browser says whose page a form is of; that it is ours, `Access` has seen to."""
    if request.method != "POST" or "Origin" in request.headers:
        return None
    return _error(HTTPStatus.FORBIDDEN, "A form must come from a page of this dashboard.")


def with_policy(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    if response.mimetype == "text/html":
        response.headers["Cache-Control"] = "no-store"
    return response


def to_overview() -> AnyResponse:
    return redirect(url_for("dashboard.overview"), 303)


def no_such_page(rest: str) -> tuple[str, int]:
    return _error(HTTPStatus.NOT_FOUND, "There is no such page.")


def shown_mistake(error: InvalidParameter) -> tuple[str, int]:
    return _error(HTTPStatus.BAD_REQUEST, str(error))


def shown_error(error: ReservationExpiryError) -> tuple[str, int]:
    sentence = error.public
    return _error(STATUS_OF[type(error)], f"{sentence[:1].upper()}{sentence[1:]}.")


def shown_http_error(error: HTTPException) -> tuple[str, int]:
    return _error(HTTPStatus(error.code or 500), error.description or "")


def _error(status: HTTPStatus, sentence: str) -> tuple[str, int]:
    return render_template("error.html", status=status, sentence=sentence), status
