"""APScheduler, over a job store of ours.

Stock APScheduler deletes a one-shot job when it is submitted, drops what is late, knows
no retries, and its thread dies of a row that another process took. Here the alarm rows
belong to the events' transactions (unit_of_work.py) and to settlement
(claims.py); the scheduler only decides *when* to look and *where* to run. What
it is given as a job is a whole claimed batch, so its bookkeeping costs per batch and
not per alarm, and its removals and updates of "the job" touch no row.

Between the claim and the thread there is much code of others'. So a batch that is not in a
thread's hands when the pass ends is given back, whatever it was that went wrong.

APScheduler and SQLAlchemy are imported here and nowhere above: `clock.py` does so when it is
started, for most commands need neither.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.job import Job
from apscheduler.jobstores.base import BaseJobStore
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_STOPPED
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy import Engine

from reservation_expiry.infrastructure import alarm_row
from reservation_expiry.infrastructure.alarms.attempt import Claim
from reservation_expiry.infrastructure.alarms.dispatcher import AlarmDispatcher, NextLook
from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.errors import StoreError
from reservation_expiry.infrastructure.instants import datetime_of_ms, ms_of_seconds

POLL_SECONDS = 1.0  # looks at least this often: another process may have set an alarm
MAX_OUTSTANDING_BATCHES = 2
ALARMS, HOUSEKEEPING = "alarms", "housekeeping"

_LONG_AGO = datetime.fromtimestamp(0, UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)

# Passes and batches run by the dozen a second under load; the alarm log tells them better.
logging.getLogger("apscheduler.executors").setLevel(logging.ERROR)
logging.getLogger("apscheduler.scheduler").setLevel(logging.WARNING)

logger = logging.getLogger(__name__)


class Batch:
    """Claims on their way to a thread: either it runs them, or they are given back."""

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.is_submitted = False
        self._taking = threading.Lock()

    def take(self) -> bool:
        """Whether whoever asks is the first, and so has them."""
        return self._taking.acquire(blocking=False)


class AtOnce(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """When a claimed batch is due: now, and then never more.

    For APScheduler a job without a next time is over. It would look for it to remove it, and
    not find it if a stop has begun meanwhile. (Its own DateTrigger asks for the local time
    zone, too, which not every machine can tell.)
    """

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        return _NEVER


class BatchExecutor(ThreadPoolExecutor):  # type: ignore[misc]  # APScheduler has no types
    def submit_job(self, job: Job, run_times: list[datetime]) -> None:
        super().submit_job(job, run_times)
        (batch,) = job.args
        batch.is_submitted = True


class AlarmJobStore(SQLAlchemyJobStore):  # type: ignore[misc]  # APScheduler has no types
    """The alarms table as a job store: it hands out claims and writes nothing itself.

    APScheduler's questions (`get_jobs`, `get_job`) are answered from its rows, parked ones as
    paused jobs. A row that cannot be read is left out, never removed.
    """

    def __init__(
        self, engine: Engine, dispatcher: AlarmDispatcher, next_look: NextLook, clock: Clock
    ) -> None:
        super().__init__(engine=engine, tablename="alarms")
        self._dispatcher = dispatcher
        self._next_look = next_look
        self._clock = clock
        self._numbers = count(1)
        self._under_way: set[Batch] = set()
        self._counting = threading.Lock()

    @property
    def is_full(self) -> bool:
        return len(self._under_way) >= MAX_OUTSTANDING_BATCHES

    def start(self, scheduler: Any, alias: str) -> None:
        BaseJobStore.start(self, scheduler, alias)  # the schema is made by migrations

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """At most one job: a batch of alarms, claimed for this process.

        Every pass takes the write lock for a moment even if nothing is due, and so finds
        out whether the database can be written.
        """
        is_stopping = self._scheduler.state == STATE_STOPPED  # its threads may be gone
        if is_stopping or self.is_full or self._dispatcher.pause_seconds:
            return []
        claims = self._dispatcher.claim()
        if not claims:
            return []
        batch = Batch(claims)
        with self._counting:
            self._under_way.add(batch)
        return [
            self._job(
                f"batch {next(self._numbers)}",
                func=self._run_batch,
                args=(batch,),
                name=f"{len(batch.claims)} alarms",
                trigger=AtOnce(),
                next_run_time=_LONG_AGO,
            )
        ]

    def get_next_run_time(self) -> datetime | None:
        """When the next alarm is to be looked at that this process can run.

        The scheduler counts by this machine's time of day, so what the alarms' clock says
        is told in that. None for a time that is none: such a row is for verify to find,
        not to stop us.
        """
        if self.is_full or self._dispatcher.pause_seconds:
            return None
        try:
            seconds = self._next_look(self._dispatcher.scope)
            if seconds is None:
                return None
            return datetime.now(UTC) + timedelta(seconds=seconds - self._clock.now_ms() / 1000)
        except StoreError as error:
            logger.warning("when the next alarm is due cannot be told: %s", error)
        except (TypeError, ValueError, OverflowError):
            pass
        return None

    def give_back_unsubmitted(self) -> int:
        """Gives back the batches that no thread was given. How many there were."""
        with self._counting:
            rest = [batch for batch in self._under_way if not batch.is_submitted]
        taken = [batch for batch in rest if batch.take()]
        for batch in taken:
            self._dispatcher.back_off(batch.claims)
            self._end(batch)
        return len(taken)

    def _run_batch(self, batch: Batch) -> None:
        if not batch.take():
            return
        try:
            self._dispatcher.settle(batch.claims)
        finally:
            self._end(batch)
            self._scheduler.wakeup()

    def _end(self, batch: Batch) -> None:
        with self._counting:
            self._under_way.discard(batch)

    def _job(self, job_id: str, *, trigger: BaseTrigger, **what: Any) -> Job:
        """`what` is the func, args, name and next_run_time of it."""
        job = Job(
            self._scheduler,
            id=job_id,
            trigger=trigger,
            kwargs={},
            executor=ALARMS,
            misfire_grace_time=None,
            coalesce=True,
            max_instances=1,
            **what,
        )
        job._jobstore_alias = self._alias
        return job

    def add_job(self, job: Job) -> None:
        raise NotImplementedError("an alarm is set by the transaction that holds its events")

    def update_job(self, job: Job) -> None:
        """Nothing: only settling a claim moves an alarm."""

    def remove_job(self, job_id: str) -> None:
        """Nothing: only settling a claim, or ending a hold, deletes an alarm."""

    def remove_all_jobs(self) -> None:
        raise NotImplementedError("alarms follow from the log")

    def lookup_job(self, job_id: str) -> Job | None:
        found = self._get_jobs(self.jobs_t.c.id == job_id)
        return found[0] if found else None

    def _get_jobs(self, *conditions: Any) -> list[Job]:
        columns = self.jobs_t.c
        selectable = self.jobs_t.select().where(*conditions).order_by(columns.next_run_time)
        with self.engine.begin() as connection:
            rows = connection.execute(selectable).all()
        return [job for row in rows if (job := self._shown(row)) is not None]

    def _shown(self, row: Any) -> Job | None:
        """An alarm as APScheduler's questions are answered. What is run is a batch: a job that
        somebody were to run by itself would have what is due looked for."""
        try:
            state = alarm_row.decode(row.job_state)
            due = (
                None
                if row.next_run_time is None
                else datetime_of_ms(ms_of_seconds(row.next_run_time))
            )
        except (alarm_row.UnreadableAlarm, ValueError, OverflowError):
            return None
        return self._job(
            row.id,
            func=self._scheduler.wakeup,
            args=(),
            name=row.id,
            trigger=DateTrigger(datetime_of_ms(state.scheduled_time), timezone=UTC),
            next_run_time=due,
        )


class AlarmScheduler(BackgroundScheduler):  # type: ignore[misc]  # APScheduler has no types
    """Passes that always come back: within the poll interval, whatever happens in them."""

    def __init__(self, store: AlarmJobStore, dispatcher: AlarmDispatcher, clock: Clock) -> None:
        super().__init__(timezone=UTC, daemon=True, jobstore_retry_interval=POLL_SECONDS)
        self._store = store
        self._dispatcher = dispatcher
        self._clock = clock
        self.last_pass = time.monotonic()
        self.planned_wake_ms = 0

    def _process_jobs(self) -> float:
        if self.state == STATE_STOPPED:
            return POLL_SECONDS  # a last pass would claim what nobody runs any more
        wait = None
        try:
            wait = super()._process_jobs()
        except Exception:
            logger.exception("a pass over the alarms failed; the next follows")
        finally:
            self._give_back_unsubmitted()
        if wait is None or wait > POLL_SECONDS or self._store.is_full:
            wait = POLL_SECONDS  # a finished batch wakes us sooner
        wait = min(self._dispatcher.pause_seconds, POLL_SECONDS) or wait
        self.last_pass = time.monotonic()
        self.planned_wake_ms = self._clock.now_ms() + int(wait * 1000)
        return wait

    def _give_back_unsubmitted(self) -> None:
        lost = self._store.give_back_unsubmitted()
        if lost and self.state != STATE_STOPPED:
            logger.error("%d batches of alarms found no thread and were given back", lost)


def make_scheduler(
    engine: Engine,
    dispatcher: AlarmDispatcher,
    next_look: NextLook,
    clock: Clock,
    sweep: Callable[[], object],
    sweep_seconds: int,
) -> AlarmScheduler:
    """One that looks after the alarms, and calls `sweep` at once and then every so often."""
    store = AlarmJobStore(engine, dispatcher, next_look, clock)
    scheduler = AlarmScheduler(store, dispatcher, clock)
    scheduler.add_executor(BatchExecutor(MAX_OUTSTANDING_BATCHES), ALARMS)
    scheduler.add_executor(ThreadPoolExecutor(1), HOUSEKEEPING)
    scheduler.add_jobstore(store, ALARMS)
    scheduler.add_jobstore(MemoryJobStore(), HOUSEKEEPING)
    scheduler.add_job(
        sweep,
        IntervalTrigger(seconds=sweep_seconds, timezone=UTC),
        next_run_time=datetime.now(UTC),
        jobstore=HOUSEKEEPING,
        executor=HOUSEKEEPING,
        coalesce=True,
        max_instances=1,
        misfire_grace_time=None,
    )
    return scheduler
