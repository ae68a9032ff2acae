"""Reservations for a program: the service without its HTTP server.

`Reservations` prepares the database as `reservation-expiry serve` does, runs the writer and the
alarm clock in threads of the program, and ends both with its block. The rules are in
`domain/reservation.py`, the work is done by `infrastructure/application.py`; here are only the
names that programs may rely on.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

from reservation_expiry.domain.durable_object import ObjectEvent
from reservation_expiry.domain.events import ReservationEvent
from reservation_expiry.domain.ids import id_of, name_of
from reservation_expiry.domain.reservation import Reservation, Status
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreStopped
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.entrypoint import Bindings
from reservation_expiry.infrastructure.objects.host import ObjectHost
from reservation_expiry.infrastructure.readiness import Readiness
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import address_of
from reservation_expiry.infrastructure.stores.sql.queries import RecordedEvent

PAGE = 1_000  # reservations, events or parked alarms that one statement reads

attempts = logging.getLogger("reservation_expiry.alarms")


class LoggedEvent(NamedTuple):
    """One event of the log. Times are Unix milliseconds.

    `name` is the reservation's (`seat-12`) or the object's (`Counter/foo`); `version` counts
    from 1 within it, `position` from 1 within the log. `event` is the fact itself: `Held`,
    `AlarmScheduled`, `Expired` (`domain/events.py`), or one of those of objects
    (`domain/durable_object.py`).
    """

    position: int
    name: str
    version: int
    recorded_at_ms: int
    event: ReservationEvent | ObjectEvent


class Reservations:
    """Reservations in the database at `address`: the path of a SQLite file, which is created
    if it is missing, or a postgresql:// URL.

    Use it as a context manager, or call `start()` and `stop()`. Every method may be called from
    any thread, returns after the commit, and raises StoreError if the database does not answer.
    Due holds end while the block is open, `alarms=False` leaves them to another process. Any
    number of programs and servers may use one database at a time; a process that was forked
    inside the block must open its own.

    Raises InvalidAddress, a DatabaseRefused, if `address` is no address.
    """

    def __init__(self, address: str | os.PathLike[str], *, alarms: bool = True) -> None:
        self._address = address_of(os.fspath(address))
        self._alarms = alarms
        self._application: ReservationApplication | None = None
        self._has_objects = False

    def start(self) -> None:
        """Prepares the database and starts the threads.

        Creates or migrates the tables, and rebuilds projections that do not follow from the log.
        Waits for a PostgreSQL server that does not answer yet. Raises DatabaseRefused if the
        database is foreign, newer, damaged or not writable, RuntimeError if it was started.
        """
        if self._application is not None:
            raise RuntimeError("these reservations are started already")
        prepare(self._address)
        application = ReservationApplication(self._address, alarm_log=AlarmLog(_ToLogging()))
        try:
            application.start(alarms=self._alarms)
        except BaseException:
            application.stop()
            raise
        self._application = application

    def stop(self) -> None:
        """Finishes the commands that were handed in, then ends the threads. May be called
        twice. What falls due from now on ends when another process runs, or at the next
        start."""
        application, self._application = self._application, None
        if application is not None:
            application.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def hold(self, name: str, ttl_seconds: int) -> Reservation:
        """Holds `name` for `ttl_seconds` from now, whatever state it is in. Returns the new
        state.

        A name is 3 to 40 lowercase letters, digits and inner hyphens; a hold lasts from 5 to
        3600 seconds. Raises InvalidReservationId or InvalidTtl, which are DomainErrors.
        """
        return self._running.hold(name, ttl_seconds)

    def get(self, name: str) -> Reservation | None:
        """The state of `name` at the newest commit; None if it was never held. Raises
        InvalidReservationId."""
        return self._running.get(name)

    def find(
        self,
        *,
        status: Status | None = None,
        prefix: str = "",
        due_before_ms: int | None = None,
    ) -> Iterator[Reservation]:
        """All reservations in order of their names, 1,000 to a statement: those with this
        `status` ("held" or "expired"), whose name begins with `prefix`, and whose open hold
        ends before `due_before_ms` (Unix milliseconds)."""
        after = ""
        while page := self._running.queries.reservations(
            status=status, prefix=prefix, due_before_ms=due_before_ms, after=after, limit=PAGE
        ):
            yield from page
            after = page[-1].name

    def history(self, name: str) -> Iterator[LoggedEvent]:
        """The events of one reservation, or of an object (`Counter/foo`), the oldest first.
        Raises InvalidReservationId or InvalidObjectName, and UndecodableEvent, a StoreError,
        at an event that cannot be read."""
        return _logged(self._running.queries.history(id_of(name)))

    def events(self, after: int = 0) -> Iterator[LoggedEvent]:
        """The log behind the position `after`, up to its newest event. To follow the log, call
        this again with the last `position`. Raises UndecodableEvent as `history` does."""
        while page := self._running.queries.events_after(after, PAGE):
            yield from _logged(page)
            after = page[-1].position

    def parked(self) -> Iterator[str]:
        """The names of the reservations and objects whose alarm was given up after seven failed
        attempts."""
        after = ""
        while page := self._running.queries.parked(PAGE, after):
            yield from map(name_of, page)
            after = page[-1]

    def redrive(self, name: str) -> bool:
        """Sets the alarm of `name` anew from the log: a parked one gets seven new attempts.
        Returns whether `name` has an alarm now. Raises InvalidReservationId or
        InvalidObjectName."""
        return self._running.redrive(name)

    def readiness(self) -> Readiness:
        """Whether this process can write and ends holds that are due, and if not, the reasons.
        Answers within a second."""
        return self._running.readiness()

    @asynccontextmanager
    async def objects(
        self, *classes: type[DurableObject], env: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Bindings]:
        """Runs objects of `classes` and their alarms on the running event loop, within
        `async with`. Raises RuntimeError if objects of this database run here already.

        Gives the bindings: `bindings.Agent.getByName("alice")` is a stub of one object of the
        class `Agent`, whose public methods are awaited. Objects find the same bindings, and the
        values of `env`, in `self.env`.
        """
        application = self._running
        if self._has_objects:
            raise RuntimeError("objects of this database run in this process already")
        self._has_objects = True
        host = ObjectHost(application, {each.__name__: each for each in classes})
        bindings = Bindings(
            {**(env or {}), **{name: host.namespace(name) for name in host.classes}}
        )
        host.env = bindings
        try:
            await host.start()
            application.alarm_clock.wake_for(0)
            yield bindings
        finally:
            await host.stop()
            self._has_objects = False

    @property
    def _running(self) -> ReservationApplication:
        if self._application is None:
            raise StoreStopped("these reservations are not started: use them within `with`")
        return self._application


def _logged(rows: Iterable[RecordedEvent]) -> Iterator[LoggedEvent]:
    decode = EventMapper().decode
    for row in rows:
        event = decode(row.originator_id, row.originator_version, row.topic, row.state)
        name = name_of(row.originator_id)
        yield LoggedEvent(row.position, name, row.originator_version, row.recorded_at_ms, event)


class _ToLogging:
    """Lines of the alarm log for the program's own logging: a library prints nothing."""

    def write(self, lines: bytes) -> None:
        if attempts.isEnabledFor(logging.INFO):
            for line in lines.splitlines():
                attempts.info("%s", line.decode())
