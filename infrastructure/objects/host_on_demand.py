"""A host of objects that begins when there are any: in a service that may have none.

It begins when the first object is called, or when there are objects in the database,
whoever made them, which is looked for once a second; a service that has none pays no more
than that for it.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextvars import Context
from typing import Any

from reservation_expiry.domain.ids import ObjectId, objects_of
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreError, StoreStopped
from reservation_expiry.infrastructure.objects.entrypoint import Bindings
from reservation_expiry.infrastructure.objects.host import ObjectHost

WATCH_SECONDS = 1.0

logger = logging.getLogger(__name__)


class HostOnDemand:
    """`start()`, `call(...)`, `stop()`, all on one event loop."""

    def __init__(self, application: ReservationApplication, classes: Mapping[str, type]) -> None:
        self._application = application
        self._classes = dict(classes)
        self._host: ObjectHost | None = None
        self._beginning = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Begins as soon as there are objects of these classes."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def call(self, identity: ObjectId, method: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a method of an object. Raises what it raises."""
        host = await self._begin()
        return await host.call(identity, method, *args, **kwargs)

    async def stop(self) -> None:
        """Waits for what is under way. May be called twice."""
        self._stopped = True
        if self._watching is not None:
            self._watching.cancel()
        async with self._beginning:
            host, self._host = self._host, None
        if host is not None:
            await host.stop()

    async def _watch(self) -> None:
        while self._host is None and not self._stopped:
            try:
                if await asyncio.to_thread(self._has_objects):
                    await self._begin()
            except StoreError as error:
                logger.warning("objects do not run yet: %s", error)
            await asyncio.sleep(WATCH_SECONDS)

    def _has_objects(self) -> bool:
        queries = self._application.queries
        return any(queries.has_objects(objects_of(name)) for name in self._classes)

    async def _begin(self) -> ObjectHost:
        async with self._beginning:
            if self._stopped:
                raise StoreStopped("the service is shutting down")
            if self._host is None:
                host = ObjectHost(self._application, self._classes)
                host.env = Bindings({name: host.namespace(name) for name in self._classes})
                # In a context of nobody's: what it does from now on is not this caller's doing.
                await asyncio.get_running_loop().create_task(host.start(), context=Context())
                self._host = host
                self._application.alarm_clock.wake_for(0)
            return self._host
