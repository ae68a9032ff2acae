"""A file of durable objects and the service's own routes, in one process.

The file's front door answers every path but those below a prefix, where all routes of the
service are, `/healthz` and `/schedules/` among them. Schedules are objects, too, and run
beside the file's own.
"""

import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from reservation_expiry.api.access import Access
from reservation_expiry.api.front import Door, Front
from reservation_expiry.api.gate import Need, access_of, needs_of_service, needs_of_worker
from reservation_expiry.api.paths import resolved
from reservation_expiry.api.requests import Receive, Scope, Send
from reservation_expiry.api.schedules import CLASSES
from reservation_expiry.api.server import Open, front_of
from reservation_expiry.api.worker import LoadedWorker, Source, WorkerDoor, WorkerRefused
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.settings import Settings

PREFIX = re.compile(r"(/[A-Za-z0-9._~-]*[A-Za-z0-9_~-])+")
PREFIX_RULE = "a path such as /service: letters, digits and . _ ~ - between slashes"


class PrefixedDoor(WorkerDoor):
    """The file's front door, and the service's, `front`, below `prefix`."""

    def __init__(
        self,
        application: ReservationApplication,
        access: Access,
        worker: LoadedWorker,
        prefix: str,
    ) -> None:
        super().__init__(application, access, worker, CLASSES)
        self._prefix = prefix
        self._front: Front | None = None

    def put_below(self, front: Front) -> None:
        """What a process has one of, both doors share."""
        front.connections, front.bodies = self.connections, self.bodies
        self._front, self.metrics = front, front.metrics

    def route(self, raw_path: bytes) -> str:
        below = _below(self._prefix, raw_path)
        if below is None or self._front is None:
            return super().route(raw_path)
        return self._front.route(below)

    def drain(self) -> None:
        super().drain()
        if self._front is not None:
            self._front.drain()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = _below(self._prefix, scope["raw_path"])
        if below is None or self._front is None:
            return await super().answer(scope, receive, send)
        await self._front.answer(
            {**scope, "raw_path": below, "root_path": self._prefix}, receive, send
        )


def _below(prefix: str, raw_path: bytes) -> bytes | None:
    """What follows the prefix, as a path of its own; None if it is elsewhere."""
    path = resolved(raw_path)
    if path != prefix and not path.startswith(f"{prefix}/"):
        return None
    return path.removeprefix(prefix).encode("latin-1") or b"/"


def _needs(prefix: str, method: str, raw_path: bytes, *, answers_health: bool) -> Need:
    below = _below(prefix, raw_path)
    if below is None:
        return needs_of_worker(method, raw_path, answers_health=answers_health)
    return needs_of_service(method, below)


def open_both(source: Source, settings: Settings, prefix: str) -> Open:
    """The objects of a file with its front door, and the service's routes below `prefix`."""

    @asynccontextmanager
    async def both(application: ReservationApplication) -> AsyncIterator[Door]:
        worker = source.run()
        for name in worker.classes.keys() & CLASSES.keys():
            raise WorkerRefused(f"{source.file} has a class {name}, which the service has, too")
        with ExitStack() as stack:
            needs = partial(_needs, prefix, answers_health=worker.front_door.answers_health)
            access = stack.enter_context(access_of(settings, application, needs, prefix))
            door = PrefixedDoor(application, access, worker, prefix)
            front = stack.enter_context(front_of(application, settings, access, door.call_object))
            door.put_below(front)
            await door.start()
            try:
                yield door
            finally:
                await door.stop()
                front.close()
                door.close()

    return both
