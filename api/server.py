"""One serving process: uvicorn in front, and what it serves started before and stopped after.

The parent (`processes.py`) has prepared the database and listens; the process opens its own
connections and threads, serves on one event loop, and on SIGTERM takes nothing new, answers
what it has, and ends.
"""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import uvicorn
import uvloop

from reservation_expiry.api import limits
from reservation_expiry.api.access import Access
from reservation_expiry.api.front import Door, Front
from reservation_expiry.api.gate import access_of, needs_of_service
from reservation_expiry.api.http import create_app
from reservation_expiry.api.logs import configure_logging
from reservation_expiry.api.metrics import Metrics
from reservation_expiry.api.processes import LISTEN_BACKLOG, Report
from reservation_expiry.api.schedules import Schedules, schedule_host
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.async_reservations import AsyncReservations
from reservation_expiry.infrastructure.machine import output
from reservation_expiry.infrastructure.settings import SHUTDOWN_GRACE_SECONDS, Settings

DRAIN_SECONDS = SHUTDOWN_GRACE_SECONDS - 1  # for answers; the rest of the grace ends the threads

Open = Callable[[ReservationApplication], AbstractAsyncContextManager[Door]]
"""What is served: opened on the loop once the application runs, closed before it stops."""


def serve(
    settings: Settings, open_door: Open, sockets: Sequence[socket.socket], report: Report
) -> None:
    """Serves until SIGTERM, then drains. The database must be prepared.

    Says by `report()` that it serves. Runs on uvloop, whatever else is installed: that is the
    event loop that is tested.
    """
    output.start()
    try:
        configure_logging(settings.log_level, settings.log_format)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, open_door, sockets, report))
    finally:
        output.stop()


async def _serve(
    settings: Settings, open_door: Open, sockets: Sequence[socket.socket], report: Report
) -> None:
    with running(_application(settings)) as application:
        async with open_door(application) as door:
            application.start_alarms()  # objects are there to run theirs by now
            server = _Server(_configuration(door))
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _drain, server, door)
            sweep = asyncio.create_task(door.connections.sweep())
            keeping = asyncio.create_task(door.metrics.keep_published())
            _collect_garbage_seldom()
            report()
            await server.serve(sockets=list(sockets))
            sweep.cancel()
            keeping.cancel()
    door.metrics.publish()  # what was done to the last


def _application(settings: Settings) -> ReservationApplication:
    return ReservationApplication(settings.database, kept_attempts=settings.kept_attempts)


def _collect_garbage_seldom() -> None:
    """A body that is all brackets makes a hundred thousand lists at once. By default they
    would be searched for cycles every 700, with all that the modules keep: 50 ms instead of
    15 in which nobody else is served."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _drain(server: uvicorn.Server, door: Door) -> None:
    door.drain()
    server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn's, which leaves signals to this process: it would raise a SIGTERM again when
    it has drained, and the process would seem to have been killed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _configuration(door: Door) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # bad requests are no news
    return uvicorn.Config(
        door,
        http=door.connections.protocol,  # type: ignore[arg-type]  # any maker of protocols will do
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=LISTEN_BACKLOG,
        timeout_keep_alive=int(limits.IDLE_SECONDS) + 5,  # ours comes first, and sees more
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


def open_service(settings: Settings) -> Open:
    """Reservations and schedules over HTTP."""

    @asynccontextmanager
    async def service(application: ReservationApplication) -> AsyncIterator[Door]:
        host = schedule_host(application)
        host.start()
        with (
            access_of(settings, application, needs_of_service) as access,
            front_of(application, settings, access, host.call) as front,
        ):
            try:
                yield front
            finally:
                front.close()
                await host.stop()

    return service


@contextmanager
def front_of(
    application: ReservationApplication,
    settings: Settings,
    access: Access,
    call_object: Callable[..., Awaitable[Any]],
) -> Iterator[Front]:
    """All routes of the service; `call_object` runs its schedules. To be closed."""
    with_replay = settings.replay_route
    reservations = AsyncReservations(application)
    schedules = Schedules(call_object)
    metrics = Metrics(application)
    app = create_app(
        application,
        replay_route=with_replay,
        schedules=schedules,
        namespace=settings.namespace,
        longest_hold_seconds=settings.longest_hold_seconds,
        sessions=access.sessions,
        metrics=metrics,
    )
    try:
        yield Front(
            application,
            reservations,
            app,
            access,
            metrics,
            replay_route=with_replay,
            longest_hold_seconds=settings.longest_hold_seconds,
        )
    finally:
        reservations.close()


@contextmanager
def running(application: ReservationApplication) -> Iterator[ReservationApplication]:
    """The application without alarms as yet, started, and stopped whatever happens."""
    application.start(alarms=False)
    try:
        yield application
    finally:
        application.stop()
