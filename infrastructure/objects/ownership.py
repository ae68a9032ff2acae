"""Which objects are this process's: a lease in the database, renewed while it lives.

The lease is the process's; each object's row says whose it is. A process that was
frozen, or cut off, past its lease asks what it has lost before it runs or answers
anything; what it tries to write to a lost object is refused in the write itself.

Others judge the lease by the store's clock, so we do, too: a step of it ends the lease here
as it does there. As it might step back again, a clock that nobody sets must agree.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import uuid4

from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.clock import elapsed_seconds
from reservation_expiry.infrastructure.errors import StoreError
from reservation_expiry.infrastructure.objects.object_commands import LeaveObjects, RenewOwner
from reservation_expiry.infrastructure.unit_of_work import Work

LEASE_MS = 5_000
MARGIN_MS = 500  # by which we believe the lease to be shorter than it is

logger = logging.getLogger(__name__)


class Objects(Protocol):
    """The objects that a process has in memory, and its way to the writer."""

    def now_ms(self) -> int: ...
    def objects_here(self) -> set[str]: ...
    def drop_lost(self, object_ids: set[str]) -> None: ...
    async def execute(self, work: Work) -> Any: ...


class Ownership:
    """The lease of one process. `shared` says whether others have one on this database."""

    def __init__(self, application: ReservationApplication, objects: Objects) -> None:
        self.token = uuid4().hex
        self.shared = False
        self._application = application
        self._objects = objects
        self._now_ms = application.clock.now_ms
        self._valid_seconds = 0.0  # up to then, by the clock that nobody sets
        self._valid_ms = 0  # and by the store's
        self._began = False

    async def renew(self, claims: Sequence[Claim] = ()) -> None:
        """Raises StoreError if the database does not answer."""
        late = self._began and not self.is_valid()
        asked = elapsed_seconds()
        kept, until_ms = await self._objects.execute(RenewOwner(self.token, LEASE_MS, claims))
        if late or (self._began and not kept):
            logger.warning("the objects' lease had lapsed: looking what was taken over")
            held = self._objects.objects_here()  # before we ask: what comes meanwhile is ours
            owned = await asyncio.to_thread(self._application.queries.owned_objects, self.token)
            self._objects.drop_lost(held - owned)
        self._valid_seconds = asked + (LEASE_MS - MARGIN_MS) / 1000
        self._valid_ms = until_ms - MARGIN_MS
        self._began = True
        self.shared = await asyncio.to_thread(
            self._application.queries.other_owners, self.token, self._objects.now_ms()
        )

    async def leave(self) -> None:
        try:
            await self._objects.execute(LeaveObjects(self.token))
        except StoreError as error:
            logger.warning("the objects stay ours until the lease ends: %s", error)

    def is_valid(self) -> bool:
        """Whether we can be sure that the lease holds. If not, `renew` looks what was lost."""
        return self._objects.now_ms() < self._valid_ms and elapsed_seconds() < self._valid_seconds
