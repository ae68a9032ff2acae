"""The pages of one: a reservation, an object, a schedule, and the log at a moment."""

from functools import lru_cache
from itertools import islice

from flask import abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from reservation_expiry.api.dashboard.moments import moment
from reservation_expiry.api.read_routes import MAX_INTEGER, InvalidParameter, integer, text
from reservation_expiry.api.schedules import CLASS_NAME, Schedules
from reservation_expiry.domain.ids import aggregate_id, object_id
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import UndecodableEvent
from reservation_expiry.infrastructure.replay.diff import Change, changes_between
from reservation_expiry.infrastructure.stores.sql.activity import Activity
from reservation_expiry.infrastructure.stores.sql.alarm_pages import AttemptsWanted

ATTEMPTS = 20  # that are shown of one
CHANGES = 200  # that are shown between two moments
EVENTS_OF_SCHEDULE = 50
MOMENTS_REMEMBERED = 256


class SinglePages:
    def __init__(self, application: ReservationApplication, schedules: Schedules | None) -> None:
        self._application = application
        self._schedules = schedules
        self._queries = application.queries
        self._activity = Activity(application.queries.reader)
        self._standing = lru_cache(maxsize=MOMENTS_REMEMBERED)(self._count_standing)

    def reservation(self, name: str) -> str:
        id = aggregate_id(name)
        return self._one(id, name, "reservation.html", now=self._queries.reservation(name))

    def one_object(self, class_name: str, name: str) -> str:
        id = str(object_id(class_name, name))
        return self._one(id, f"{class_name}/{name}", "object.html", now=None)

    def _one(self, id: str, title: str, template: str, **more: object) -> str:
        version = integer("version", None, 0, MAX_INTEGER)
        found = moment(self._queries, self._application.mapper, id, version)
        if found is None:
            abort(404, f"{title} is nowhere in the log.")
        return render_template(
            template,
            id=id,
            title=title,
            moment=found,
            follows=version is None,
            attempts=self._attempts_at(id),
            **more,
        )

    def _attempts_at(self, id: str) -> list[tuple[object, ...]]:
        return list(self._queries.attempts(AttemptsWanted(subject=id), ATTEMPTS))

    def schedule(self, name: str) -> str:
        if self._schedules is None:
            abort(404)
        after = text("after") or ""
        found = self._schedules.ask(name, "listEvents", EVENTS_OF_SCHEDULE + 1, after)
        shown = found[:EVENTS_OF_SCHEDULE]
        return render_template(
            "schedule.html",
            name=name,
            found=shown,
            following=shown[-1]["id"] if len(found) > EVENTS_OF_SCHEDULE else None,
            attempts=self._attempts_at(str(object_id(CLASS_NAME, name))),
        )

    def redrive_event(self, name: str) -> Response:
        """Gives the parked event that the form names a fresh start."""
        if self._schedules is None:
            abort(404)
        found = self._schedules.ask(name, "redrivenEvent", request.form.get("id", ""))
        word = "redriven" if found is not None and found["redriven"] else "not-parked"
        return redirect(url_for("dashboard.schedule", name=name, done=word), 303)

    def log(self) -> str:
        """How all stood after the event at one position, and what led there from another."""
        head = self._queries.head().position
        at = min(integer("at", head, 0, MAX_INTEGER), head)
        since = integer("since", None, 0, MAX_INTEGER)
        if since is not None and since > at:
            raise InvalidParameter("The earlier moment must not come after the other.")
        changes, problem = ([], None) if since is None else self._changes(since, at)
        log_id = self._queries.log_id()
        return render_template(
            "log.html",
            head=head,
            at=at,
            since=since,
            at_ms=self._activity.recorded_at(at) if at else None,
            standing=self._standing(log_id, at),
            before=None if since is None else self._standing(log_id, since),
            changes=changes[:CHANGES],
            has_more=len(changes) > CHANGES,
            problem=problem,
        )

    def _count_standing(self, log_id: str, position: int) -> dict[str, int]:
        if self._queries.head().position == position:
            now = self._activity.standing_now()
            if self._queries.head().position == position:  # nothing came in between
                return now
        return self._activity.standing_at(position)

    def _changes(self, since: int, at: int) -> tuple[list[Change], str | None]:
        mapper = self._application.mapper
        try:
            found = changes_between(self._queries, mapper, since, at)
            return list(islice(found, CHANGES + 1)), None
        except UndecodableEvent as error:
            return [], str(error)
