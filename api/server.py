"""Serving: granian in front, one writer and one alarm clock in each worker process.

The parent prepares the database and closes it before any worker exists; it holds no
connection and runs no request. A worker starts its threads around granian's own run,
so that they stop after the last request has been answered, and ends itself when its
parent is gone.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from granian import _signals as granian_signals
from granian._granian import WorkerSignal
from granian.constants import Interfaces
from granian.server.mp import MPServer

from api.http import create_app
from api.schedules import Schedules
from domain.errors import ReservationExpiryError
from infrastructure.application import IN_FLIGHT_LIMIT, ReservationApplication
from infrastructure.redaction import without_secrets
from infrastructure.settings import SHUTDOWN_GRACE_SECONDS, Settings

# More threads than commands that may wait for the database, so that reads and health
# checks find one free even when nothing can be written.
THREADS = IN_FLIGHT_LIMIT + 8
ORPHAN_CHECK_SECONDS = 0.5
LISTEN_BACKLOG = 1024
ASK_AGAIN_SECONDS = 0.5
MAX_DEATHS, DEATHS_SECONDS = 20, 60  # of workers; more in that time means they cannot live

logger = logging.getLogger(__name__)


class CannotListen(ReservationExpiryError):
    """The address is taken, not ours, or not allowed."""

    code = "cannot-listen"


def refuse_taken_address(host: str, port: int) -> None:
    """Raises CannotListen unless the address is free.

    granian sets SO_REUSEPORT, with which a second server on the port would start without
    a word and share the first one's requests. A plain bind tells.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(f"cannot listen on {host}:{port}: {reason.lower()}") from error


def serve(settings: Settings, worker: "Worker | None" = None) -> None:
    """Serves until SIGINT or SIGTERM, then drains. The database must be prepared.

    `worker` is what each process runs, reservations over HTTP unless told otherwise.
    Exits the process with 1 if the workers cannot be kept alive.
    """
    worker = worker or Worker(settings, os.getpid())
    server = _Server(
        target="reservation-expiry",
        address=settings.host,
        port=settings.port,
        interface=worker.interface,
        workers=settings.workers,
        blocking_threads=worker.threads,
        backlog=LISTEN_BACKLOG,
        websockets=False,
        log_level=_granian_level(settings.log_level),
        respawn_failed_workers=True,
        respawn_interval=0.1,
        workers_kill_timeout=SHUTDOWN_GRACE_SECONDS,
    )
    # The warning about many threads is for CPU-bound apps; ours wait for the disk.
    logging.getLogger("_granian").addFilter(lambda r: "Python threads" not in r.getMessage())
    server.serve(spawn_target=worker, target_loader=_no_target, wrap_loader=False)


class _Server(MPServer):
    """granian's server, which calls a worker's exit a failure if the worker heard of the
    shutdown before it did, as happens when a signal goes to the whole process group."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deaths: list[float] = []

    def signal_handler_interrupt(self, *args: Any, **kwargs: Any) -> None:
        for worker in self.wrks:
            worker.interrupt_by_parent = True
        super().signal_handler_interrupt(*args, **kwargs)

    def _respawn_workers(self, *args: Any, **kwargs: Any) -> None:
        """Replaces a dead worker however often, until it is plainly no use.

        granian gives up, healthy workers included, when one dies twice in 5.5 s. An alarm
        that kills its process may do that; it is parked in the end, and the rest goes on.
        """
        now = time.monotonic()
        self.deaths = [at for at in self.deaths if now - at < DEATHS_SECONDS] + [now]
        if len(self.deaths) > MAX_DEATHS:
            logger.error("%d workers died within %d s: giving up", MAX_DEATHS, DEATHS_SECONDS)
            self.interrupt_signal = True
            self.interrupt_children.append(0)
            return
        logger.error("a worker died and is replaced")
        super()._respawn_workers(*args, **kwargs)
        self.respawned_wrks.clear()

    def _stop_workers(self) -> None:
        """Asks more than once: a SIGTERM that comes just as a worker's main thread goes to
        sleep is noted by the interpreter, and acted on only when another one wakes it."""
        stopped = threading.Event()

        def ask_again() -> None:
            while not stopped.wait(ASK_AGAIN_SECONDS):
                for worker in list(self.wrks):
                    worker.terminate()

        threading.Thread(target=ask_again, name="ask-again", daemon=True).start()
        super()._stop_workers()
        stopped.set()
        if self.interrupt_signal and len(self.deaths) <= MAX_DEATHS:
            self.interrupt_children.clear()


@dataclass(frozen=True)
class Worker:
    """What a worker process runs. Called by granian, in the new process."""

    settings: Settings
    parent_pid: int

    interface: ClassVar[Interfaces] = Interfaces.WSGI
    threads: ClassVar[int] = THREADS

    def __call__(
        self, worker_id: int, process_name: str | None, loader: Callable, *args: Any
    ) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until there is something to drain
        granian_signals.set_sync_signals = _drain_once
        configure_logging(self.settings.log_level)
        _end_with_parent(self.parent_pid)
        with running(ReservationApplication(self.settings.database)) as application:
            self.answer(application, worker_id, process_name, *args)

    def answer(self, application: ReservationApplication, *args: Any) -> None:
        """Answers requests until it is told to drain."""
        worker_id, process_name, *more = args
        schedules = Schedules(application)
        app = create_app(application, replay_route=self.settings.replay_route, schedules=schedules)
        schedules.start()
        try:
            MPServer._spawn_wsgi_worker(worker_id, process_name, lambda: app, *more)
        finally:
            schedules.stop()


def _drain_once() -> WorkerSignal:
    """What granian waits for in a worker, set by the first SIGTERM.

    granian's own handler hangs when a second signal comes while it drains, as one does
    when a terminal and a process manager both see to it.
    """
    drain = WorkerSignal()

    def handler(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        drain.set()

    signal.signal(signal.SIGTERM, handler)
    return drain


def drain_once_on_loop(
    loop: asyncio.AbstractEventLoop, on_drain: Callable[[], None]
) -> WorkerSignal:
    """The same for a worker whose main thread runs an event loop; calls `on_drain` first."""
    drain = WorkerSignal()

    def handler() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        on_drain()
        drain.set()

    loop.add_signal_handler(signal.SIGTERM, handler)
    return drain


@contextmanager
def running(application: ReservationApplication) -> Iterator[ReservationApplication]:
    """The application, started, and stopped whatever happens."""
    application.start()
    try:
        yield application
    finally:
        application.stop()


def configure_logging(level: str) -> None:
    """Everything but the alarm log goes to standard error."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(without_secrets)


def _no_target() -> None:
    """granian wants a loader for the app; the worker makes its own."""


def _granian_level(level: str) -> Any:
    from granian.log import LogLevels

    return LogLevels.debug if level == "debug" else LogLevels.warning


def _end_with_parent(parent_pid: int) -> None:
    """Has this process drain and exit once its parent is gone, killed included."""

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(ORPHAN_CHECK_SECONDS)
        logger.error("the parent process is gone: shutting down")
        for _ in range(int(SHUTDOWN_GRACE_SECONDS / ASK_AGAIN_SECONDS)):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(ASK_AGAIN_SECONDS)
        os._exit(1)  # as the parent would have done to one that does not come to an end

    threading.Thread(target=watch, name="orphan-watch", daemon=True).start()
