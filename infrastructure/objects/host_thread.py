"""Objects in a process that serves with threads: a host on an event loop of its own.

It begins when the first object is called, or when there are objects, which is looked for
once a second; a service that has none pays no more than that for it.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from domain.durable_object import OBJECT_PREFIX, ObjectId
from infrastructure.application import ReservationApplication
from infrastructure.errors import StoreBusy, StoreError, StoreStopped
from infrastructure.objects.entrypoint import Bindings
from infrastructure.objects.host import ObjectHost

WATCH_SECONDS = 1.0
CALL_SECONDS = 30.0  # how long a caller waits, beyond every other limit


logger = logging.getLogger(__name__)


class HostThread:
    """Owns the loop's thread: `start()`, `call(...)`, `stop()`."""

    def __init__(self, application: ReservationApplication, classes: Mapping[str, type]) -> None:
        self._application = application
        self._classes = dict(classes)
        self._host: ObjectHost | None = None
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._stopping = threading.Event()

    def start(self) -> None:
        """Begins as soon as there are objects of these classes, whoever made them."""
        self._watching = threading.Thread(target=self._watch, name="objects-watch", daemon=True)
        self._watching.start()

    def _watch(self) -> None:
        prefixes = [f"{OBJECT_PREFIX}{name}/" for name in self._classes]
        while self._host is None and not self._stopped:
            try:
                if any(self._application.queries.has_objects(prefix) for prefix in prefixes):
                    self._begin()
            except StoreError as error:
                logger.warning("schedules do not run yet: %s", error)
            self._stopping.wait(WATCH_SECONDS)

    def stop(self) -> None:
        """Waits for what is under way. May be called twice."""
        with self._beginning:
            self._stopped = True
            self._stopping.set()
            loop, thread, host = self._loop, self._thread, self._host
            self._loop = self._thread = self._host = None
        if loop is not None and thread is not None and host is not None:
            asyncio.run_coroutine_threadsafe(host.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def call(self, identity: ObjectId, method: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a method of an object, from any thread. Raises what it raises."""
        host, loop = self._begin()
        call = asyncio.run_coroutine_threadsafe(host.call(identity, method, *args, **kwargs), loop)
        try:
            return call.result(CALL_SECONDS)
        except TimeoutError as error:
            if call.done():
                raise  # the object's own
            raise StoreBusy(f"{identity} did not answer within {CALL_SECONDS:.0f} s") from error

    def _begin(self) -> tuple[ObjectHost, asyncio.AbstractEventLoop]:
        with self._beginning:
            if self._stopped:
                raise StoreStopped("the service is shutting down")
            if self._host is None or self._loop is None:
                self._host, self._loop = self._started()
            return self._host, self._loop

    def _started(self) -> tuple[ObjectHost, asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="objects", daemon=True)
        self._thread.start()
        host = ObjectHost(self._application, self._classes)
        host.env = Bindings({name: host.namespace(name) for name in self._classes})
        started: Future[None] = asyncio.run_coroutine_threadsafe(host.start(), loop)
        try:
            started.result(CALL_SECONDS)
        except BaseException:
            started.cancel()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()
            raise
        self._application.alarm_clock.notice(0)
        return host, loop
