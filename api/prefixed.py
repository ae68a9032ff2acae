"""A file of durable objects and the service's own routes, in one process.

The file's front door answers every path but those below a prefix, where all routes of the
service are, `/healthz` and `/schedules/` among them. Schedules are objects, too, and run
beside the file's own.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reservation_expiry.api.access import Access
from reservation_expiry.api.front import Door, Front
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
        self, application: ReservationApplication, access: Access, worker: LoadedWorker
    ) -> None:
        super().__init__(application, access, worker, CLASSES)
        self._prefix = ""
        self._front: Front | None = None

    def put_below(self, prefix: str, front: Front) -> None:
        """What a process has one of, both doors share."""
        front.connections, front.bodies = self.connections, self.bodies
        self._prefix, self._front = prefix, front

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = self._below_prefix(resolved(scope["raw_path"]))
        if below is None or self._front is None:
            return await super().answer(scope, receive, send)
        await self._front.answer({**scope, "raw_path": below}, receive, send)

    def _below_prefix(self, path: str) -> bytes | None:
        """What follows the prefix, as a path of its own."""
        if path != self._prefix and not path.startswith(f"{self._prefix}/"):
            return None
        return path.removeprefix(self._prefix).encode("latin-1") or b"/"


def open_both(source: Source, settings: Settings, prefix: str) -> Open:
    """The objects of a file with its front door, and the service's routes below `prefix`."""

    @asynccontextmanager
    async def both(application: ReservationApplication) -> AsyncIterator[Door]:
        access, worker = Access.of(settings), source.run()
        for name in worker.classes.keys() & CLASSES.keys():
            raise WorkerRefused(f"{source.file} has a class {name}, which the service has, too")
        door = PrefixedDoor(application, access, worker)
        with front_of(application, settings, access, door.call_object) as front:
            door.put_below(prefix, front)
            await door.start()
            try:
                yield door
            finally:
                await door.stop()
                front.close()
                door.close()

    return both
