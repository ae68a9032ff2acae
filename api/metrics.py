"""`GET /metrics`: what all processes of the service have done, and how the database is.

Each process counts in plain numbers (`infrastructure/measures.py`), and twice a second, at
its end and when it is scraped itself it adds what is new to its file in the folder that the
parent made. The scraped one adds all files up. `prometheus_client` is loaded with the first
of these, not at the start: that must not wait for it. What there is stands in one table, of
which docs/metrics.md is made (`make docs`).
"""

import asyncio
import logging
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, get_args

from flask import Flask, Response

from reservation_expiry.api.metrics_folder import VARIABLE
from reservation_expiry.domain.alarm import Outcome
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.machine.output import lines_dropped
from reservation_expiry.infrastructure.measures import (
    BATCH_BOUNDS,
    COMMIT_BOUNDS,
    LATENESS_BOUNDS,
    Tally,
)
from reservation_expiry.infrastructure.stores.sql.activity import Census

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)
PREFIX = "reservation_expiry_"
PUBLISH_SECONDS = 0.5  # after which the other processes can tell what this one has done
ENDINGS = {e: e.lower() for e in ("Expired", "Confirmed", "Released", "Cancelled")}  # by event

Values = Mapping[tuple[str, ...], float]
"""A value for each combination of labels."""


@dataclass(frozen=True)
class Metric:
    """One line of the reference. Counters are named without `_total`."""

    kind: Literal["counter", "histogram", "gauge"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


ADDED_UP = (
    Metric("counter", "holds", "Holds that were made, those of a name held before included."),
    Metric("counter", "holds_ended", "Holds that came to an end, or were confirmed.", ("ending",)),
    Metric("counter", "alarm_attempts", "Attempts at alarms.", ("outcome",)),
    Metric("counter", "alarm_leases_lapsed", "Alarms that were claimed and not settled in time."),
    Metric("counter", "alarms_given_back", "Claims given back uncounted, as to a lost database."),
    Metric("counter", "log_lines_dropped", "Lines that nobody read in time."),
    Metric("counter", "http_requests", "Requests answered.", ("method", "route", "status")),
    Metric(
        "histogram",
        "alarm_lateness_seconds",
        "How long after its time an attempt at an alarm began.",
        bounds=LATENESS_BOUNDS,
    ),
    Metric("histogram", "commit_seconds", "How long a commit took.", bounds=COMMIT_BOUNDS),
    Metric("histogram", "batch_commands", "Commands in one transaction.", bounds=BATCH_BOUNDS),
    Metric("gauge", "writer_queue_depth", "Commands that wait for a writer."),
    Metric("gauge", "event_streams", "Streams of events that are open."),
)
UP = Metric("gauge", "database_up", "Whether the database told the gauges below: 1, or 0.")
READY = Metric("gauge", "ready", "Whether the scraped process is ready, as /readyz says: 1, or 0.")
OF_DATABASE: Mapping[Metric, Callable[[Census], float]] = {
    Metric("gauge", "open_holds", "Reservations that are held."): lambda c: c.open_holds,
    Metric("gauge", "alarms_overdue", "Alarms that are due and that nobody works on."): (
        lambda c: c.overdue
    ),
    Metric(
        "gauge", "alarms_oldest_overdue_seconds", "For how long the first of them has been due."
    ): lambda c: c.oldest_overdue_ms / 1000,
    Metric("gauge", "alarms_parked", "Alarms that were given up, to be re-driven."): (
        lambda c: c.parked
    ),
    Metric("gauge", "log_head", "The position of the log's last event."): lambda c: c.head,
    Metric(
        "gauge",
        "alarm_backlog_seconds",
        "For how long the first due alarm has waited that the scraped process could run.",
    ): lambda c: c.backlog_ms / 1000,
}
BUILD = Metric("gauge", "build_info", "Always 1: the labels tell what runs.", ("version", "python"))


class Metrics:
    """Of one process, which has one: `publish()` and `text()`, from any thread.

    Nothing is loaded before the first of these.
    """

    def __init__(self, application: ReservationApplication) -> None:
        self._application = application
        self._publishing = threading.Lock()
        self._instruments: dict[str, Any] = {}
        self._registry: CollectorRegistry | None = None
        self._published: dict[tuple[str, ...], float] = {}
        self._buckets: dict[str, list[int]] = {}

    async def keep_published(self) -> None:
        """For as long as the process serves. Not on the loop: the first time takes a while."""
        is_told = False
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            try:
                await asyncio.to_thread(self.publish)
                is_told = False
            except OSError as error:
                if not is_told:
                    logger.warning("metrics are not published, for they cannot be kept: %s", error)
                is_told = True

    def publish(self) -> None:
        """Adds what is new to what all processes can see."""
        with self._publishing:
            if not self._instruments:
                self._make_instruments()
            for name, values in self._counters().items():
                for labels, value in values.items():
                    self._add(name, labels, value)
            measures = self._application.measures
            self._add_tally("alarm_lateness_seconds", measures.lateness)
            self._add_tally("commit_seconds", measures.commit)
            self._add_tally("batch_commands", measures.batch)
            depth = self._application.writer.queue_depth
            self._instruments["writer_queue_depth"].set(depth)
            self._instruments["event_streams"].set(measures.streams)

    def text(self) -> bytes:
        """All processes' counters and the database's gauges, as Prometheus reads them."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        self.publish()
        registry = CollectorRegistry()
        if VARIABLE in os.environ:
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        elif self._registry is not None:
            registry.register(self._registry)
        registry.register(_Gauges(self._gauges()))
        return generate_latest(registry)

    def _make_instruments(self) -> None:
        import prometheus_client

        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = prometheus_client.CollectorRegistry()
        common: Any = {"registry": self._registry}
        for metric in ADDED_UP:
            arguments = (PREFIX + metric.name, metric.help, metric.labels)
            if metric.kind == "counter":
                made: Any = prometheus_client.Counter(*arguments, **common)
            elif metric.kind == "histogram":
                made = prometheus_client.Histogram(*arguments, buckets=metric.bounds, **common)
            else:
                made = prometheus_client.Gauge(*arguments, multiprocess_mode="livesum", **common)
            self._instruments[metric.name] = made

    def _counters(self) -> dict[str, Values]:
        """As they stand now in this process."""
        measures, counts = self._application.measures, self._application.alarm_dispatcher.counts
        events = measures.events
        return {
            "holds": {(): events["Held"]},
            "holds_ended": {(ending,): events[event] for event, ending in ENDINGS.items()},
            "alarm_attempts": {(outcome,): counts[outcome] for outcome in get_args(Outcome)},
            "alarm_leases_lapsed": {(): counts["lapsed"]},
            "alarms_given_back": {(): counts["released"]},
            "log_lines_dropped": {(): lines_dropped()},
            "http_requests": {
                (method, route, str(status)): count
                for (method, route), statuses in measures.requests.copy().items()
                for status, count in statuses.copy().items()
            },
        }

    def _add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        counter = self._instruments[name]
        before = self._published.get((name, *labels), 0.0)
        if value > before:
            (counter.labels(*labels) if labels else counter).inc(value - before)
            self._published[name, *labels] = value
        elif labels and (name, *labels) not in self._published:
            counter.labels(*labels)  # so that it is there from the start, as 0
            self._published[name, *labels] = 0.0

    def _add_tally(self, name: str, tally: Tally) -> None:
        """A histogram has no method for many observations at once: one by one, a drain's would
        cost more than it does. So it is given what `observe` adds to."""
        counts, total = tally.counts.copy(), tally.sum
        histogram, before = self._instruments[name], self._buckets.get(name, [0] * len(counts))
        for bucket, was, now in zip(histogram._buckets, before, counts, strict=True):
            if now > was:
                bucket.inc(now - was)
        added = total - self._published.get((name,), 0.0)
        if added:
            histogram._sum.inc(added)
        self._buckets[name], self._published[name,] = counts, total

    def _gauges(self) -> Iterator[tuple[Metric, Values]]:
        yield BUILD, {(version("reservation-expiry"), platform.python_version()): 1.0}
        yield READY, {(): float(self._application.readiness().ready)}
        try:
            census = self._application.census()
        except ReservationExpiryError:
            yield UP, {(): 0.0}
            return
        yield UP, {(): 1.0}
        for metric, value in OF_DATABASE.items():
            yield metric, {(): float(value(census))}


class _Gauges:
    """What is asked at the scrape, for `prometheus_client` to collect."""

    def __init__(self, gauges: Iterable[tuple[Metric, Values]]) -> None:
        self._gauges = list(gauges)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        for metric, values in self._gauges:
            family = GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


def add_metrics_route(app: Flask, metrics: Metrics) -> None:
    def show() -> Response:
        """The metrics of the whole service."""
        from prometheus_client import CONTENT_TYPE_LATEST

        return Response(metrics.text(), content_type=CONTENT_TYPE_LATEST)

    app.add_url_rule("/metrics", "metrics", show, provide_automatic_options=False)
