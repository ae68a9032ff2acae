"""The pages of many: reservations, objects, alarms, attempts, schedules, and the overview."""

from typing import Any

from flask import redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from reservation_expiry.api.alarm_routes import attempts_wanted
from reservation_expiry.api.dashboard.charts import activity_chart, lateness_chart, lateness_labels
from reservation_expiry.api.dashboard.overview import (
    COUNT_AGAIN_SECONDS,
    Remembered,
    count,
    last_hour,
)
from reservation_expiry.api.read_routes import (
    STATUSES,
    InvalidParameter,
    choice,
    integer,
    matching,
    text,
)
from reservation_expiry.api.rendering import render_alarm, render_event
from reservation_expiry.api.schedules import CLASS_NAME, Schedules
from reservation_expiry.domain.ids import OBJECT_PREFIX, named, objects_of
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.stores.sql.activity import Activity
from reservation_expiry.infrastructure.stores.sql.alarm_pages import ALARM_STATES, OUTCOMES
from reservation_expiry.infrastructure.stores.sql.item_rows import reservation_of

PAGE = 50
SORTS = ("name", "deadline")
MOST_OFFSET = 1_000_000


class ListPages:
    def __init__(self, application: ReservationApplication, schedules: Schedules | None) -> None:
        self._application = application
        self._schedules = schedules
        self._queries = application.queries
        self._activity = Activity(application.queries.reader)
        self._counts = Remembered(lambda: count(application, self._activity), COUNT_AGAIN_SECONDS)

    def overview(self) -> str:
        now_ms = self._application.clock.now_ms()
        head = self._queries.head()
        hour = last_hour(self._activity, head.position, now_ms)
        return render_template(
            "overview.html",
            counts=self._counts.get(),
            head=head,
            hour=hour,
            activity=None if hour.minutes is None else activity_chart(hour.minutes),
            lateness=lateness_chart(hour.lateness),
            lateness_table=list(zip(lateness_labels(), hour.lateness, strict=True)),
        )

    def reservations(self) -> str:
        prefix = matching("prefix", r"[a-z0-9-]{0,40}", "up to 40 of a-z, 0-9 and -")
        given = _given()
        status, sort = choice("status", STATUSES, given), choice("sort", SORTS, given) or "name"
        after, offset = text("after") or "", integer("offset", 0, 0, MOST_OFFSET)
        if sort == "deadline" and (prefix or status not in (None, "held")):
            raise InvalidParameter("By deadline are only those that are held, and all of them.")
        if sort == "deadline":
            found = [reservation_of(row) for row in self._activity.soonest(PAGE + 1, offset)]
        else:
            found = self._queries.reservations(
                status=status, prefix=prefix, after=after, limit=PAGE + 1
            )
        shown, has_more = found[:PAGE], len(found) > PAGE
        following: dict[str, Any] = {"prefix": prefix or None, "status": status, "sort": sort}
        following |= {"offset": offset + PAGE} if sort == "deadline" else {}
        following |= {"after": shown[-1].name} if sort == "name" and shown else {}
        return render_template(
            "reservations.html",
            found=shown,
            following=following if has_more else None,
            prefix=prefix,
            status=status,
            sort=sort,
            statuses=STATUSES,
        )

    def objects(self) -> str:
        class_name, prefix = text("class") or "", text("prefix") or ""
        begins = OBJECT_PREFIX if not class_name else objects_of(class_name) + prefix
        found = self._activity.objects(begins, text("after") or "", PAGE + 1)
        rows = [(named(row[0]), *row) for row in found[:PAGE]]
        following = {"class": class_name or None, "prefix": prefix or None}
        return render_template(
            "objects.html",
            found=rows,
            classes=self._counts.get().bindings,
            class_name=class_name,
            prefix=prefix,
            following={**following, "after": rows[-1][1]} if len(found) > PAGE else None,
        )

    def alarms(self) -> str:
        state, now_ms = choice("state", ALARM_STATES), self._application.clock.now_ms()
        rows = self._queries.alarms(state, now_ms=now_ms, limit=PAGE + 1)
        return render_template(
            "alarms.html",
            found=[(row[0], render_alarm(row, now_ms)) for row in rows[:PAGE]],
            has_more=len(rows) > PAGE,
            state=state,
            states=ALARM_STATES,
        )

    def redrive(self) -> Response:
        """Gives the parked alarm that the form names a fresh start."""
        done = self._application.redrive(request.form.get("name", ""))
        word = "redriven" if done else "not-parked"
        return redirect(url_for("dashboard.alarms", state="parked", done=word), 303)

    def attempts(self) -> str:
        given = _given()
        wanted = attempts_wanted(given)
        found = self._queries.attempts(wanted, PAGE + 1)
        following = {**given, "before": found[PAGE - 1][0]} if len(found) > PAGE else None
        return render_template(
            "attempts.html",
            found=found[:PAGE],
            following=following,
            given=given,
            outcomes=OUTCOMES,
        )

    def schedules(self) -> str:
        found = self._activity.objects(objects_of(CLASS_NAME), text("after") or "", PAGE + 1)
        return render_template(
            "schedules.html",
            found=[(named(row[0])["objectName"], *row) for row in found[:PAGE]],
            following={"after": found[PAGE - 1][0]} if len(found) > PAGE else None,
        )

    def live(self) -> str:
        head = self._queries.head().position
        rows = self._queries.events_after(max(0, head - PAGE), PAGE)
        shown = [(row.originator_id, render_event(row, self._application.mapper)) for row in rows]
        return render_template("live.html", found=shown[::-1], head=head)


def _given() -> dict[str, str]:
    """The query, without the fields of a form that were left empty."""
    return {name: value for name, value in request.args.items() if value}
