"""The alarm clock: when somebody looks for due alarms, and who is told of one that comes sooner.

It is started in processes that serve. What makes it tick is APScheduler (`scheduler.py`).
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from reservation_expiry.infrastructure.alarms.dispatcher import AlarmDispatcher, NextLook
from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.errors import StoreDamaged, StoreError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from reservation_expiry.infrastructure.alarms.scheduler import AlarmScheduler

SWEEP_SECONDS = 60

logger = logging.getLogger(__name__)


class AlarmClock:
    """Owns the scheduler: `start()`, `stop()`; tells it of alarms that come sooner.

    `sweep` is called at the start and once a minute, to look for inconsistent rows.
    """

    def __init__(
        self,
        open_engine: "Callable[[], Engine]",
        dispatcher: AlarmDispatcher,
        next_look: NextLook,
        clock: Clock,
        sweep: Callable[[], object],
    ) -> None:
        self._open_engine = open_engine
        self._engine: Engine | None = None
        self._dispatcher = dispatcher
        self._next_look = next_look
        self._clock = clock
        self._sweep = sweep
        self._scheduler: AlarmScheduler | None = None
        self._beginning: threading.Thread | None = None
        self._began_at = 0.0  # time.monotonic()

    def start(self) -> None:
        """Returns at once; what is overdue is being settled then."""
        self._dispatcher.begin()
        self._began_at = time.monotonic()
        self._beginning = threading.Thread(target=self._begin, name="alarm clock", daemon=True)
        self._beginning.start()

    def _begin(self) -> None:
        """A first batch, and then the scheduler, whose modules take longer to load than all
        others together: nobody's alarm waits for that."""
        self._run_a_batch()
        from reservation_expiry.infrastructure.alarms.scheduler import make_scheduler

        self._engine = self._open_engine()
        scheduler = make_scheduler(
            self._engine,
            self._dispatcher,
            self._next_look,
            self._clock,
            self._sweep_if_it_can_be,
            SWEEP_SECONDS,
        )
        scheduler.start()
        self._scheduler = scheduler

    def _run_a_batch(self) -> None:
        try:
            if claims := self._dispatcher.claim():
                self._dispatcher.settle(claims)
        except StoreError as error:
            logger.warning("what is overdue waits for the next pass: %s", error)
        except Exception:  # as with every pass: whatever it was, the next one follows
            logger.exception("a first pass over the alarms failed; the next follows")

    def stop(self) -> None:
        """Waits for the batches under way. May be called twice."""
        if self._beginning is not None:
            self._beginning.join()
            self._beginning = None
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=True)
            self._scheduler = None
            if self._engine is not None:
                self._engine.dispose()

    def wake_for(self, scheduled_time_ms: int) -> None:
        """Looks again soon if this alarm comes before the next planned look.

        A call that gets lost costs at most the poll interval.
        """
        scheduler = self._scheduler
        if scheduler is not None and scheduled_time_ms < scheduler.planned_wake_ms:
            scheduler.wakeup()

    @property
    def seconds_since_pass(self) -> float | None:
        """How long ago the last pass ended; None if the clock is not running."""
        if self._beginning is None:
            return None
        scheduler = self._scheduler
        return time.monotonic() - (scheduler.last_pass if scheduler else self._began_at)

    def _sweep_if_it_can_be(self) -> None:
        try:
            self._sweep_and_mend()
        except StoreError as error:
            logger.warning(
                "the search for inconsistent rows is repeated in %d s: %s", SWEEP_SECONDS, error
            )

    def _sweep_and_mend(self) -> None:
        """The sweep reads every alarm, and so finds damage before it is due."""
        try:
            self._sweep()
        except StoreDamaged as error:
            if not self._dispatcher.remake(error):
                raise
            self._sweep()
