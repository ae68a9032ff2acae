"""The application: one method for each thing a caller may ask for.

It ties the rooms' parts together and owns their threads. Commands go through the
writer and return after their commit; questions are answered from the newest commit.
It is an `eventsourcing` application too: `repository`, `events` and
`notification_log` work as that library documents them.
"""

import logging
import threading
import time
from typing import Any
from uuid import uuid4

from eventsourcing.application import Application
from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, Mapper
from eventsourcing.utils import Environment, EnvType

from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.domain.ids import aggregate_id, id_of, name_of
from reservation_expiry.domain.reservation import Reservation
from reservation_expiry.infrastructure.alarms.claims import ForgetAttempts, RedriveAlarm
from reservation_expiry.infrastructure.alarms.clock import AlarmClock
from reservation_expiry.infrastructure.alarms.dispatcher import AlarmDispatcher
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.commands import (
    ExpireReservation,
    HoldReservation,
    NoteServer,
    Reproject,
)
from reservation_expiry.infrastructure.errors import StoreUnavailable
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.hold_commands import Answered, Command, ForgetAnswers
from reservation_expiry.infrastructure.machine.processes import this_process
from reservation_expiry.infrastructure.measures import Measures
from reservation_expiry.infrastructure.readiness import (
    Backlog,
    Lookout,
    Question,
    Readiness,
    backlog_of,
)
from reservation_expiry.infrastructure.recorder import Recorder, StoreFactory
from reservation_expiry.infrastructure.replay.remake import remake_what_is_damaged
from reservation_expiry.infrastructure.settings import KEPT_ATTEMPTS
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.stores.row_types import AlarmScope
from reservation_expiry.infrastructure.stores.sql.activity import Activity, Census
from reservation_expiry.infrastructure.stores.sql.queries import Queries
from reservation_expiry.infrastructure.stores.sql.rows import QuickReader
from reservation_expiry.infrastructure.stores.store import open_store
from reservation_expiry.infrastructure.unit_of_work import Work
from reservation_expiry.infrastructure.writer import Writer

CENSUS_SECONDS = 3.0  # how long the database may take to count
CENSUS_EVERY_SECONDS = 5.0
SWEEP_LIMIT = 500  # inconsistent rows repaired in one transaction

logger = logging.getLogger(__name__)


class ReservationApplication(Application[str]):
    """Reservations in the database at `address`, which must have been prepared
    (`infrastructure/startup.py`).

    Nothing runs before `start()`; `stop()` finishes what was handed in and may be called
    twice. Every method raises StoreError if the database does not answer.
    """

    name = "reservation-expiry"

    def __init__(
        self,
        address: Address,
        clock: Clock | None = None,
        alarm_log: AlarmLog | None = None,
        kept_attempts: int = KEPT_ATTEMPTS,
    ) -> None:
        self._store = open_store(address)
        self.clock = clock or self._store.clock
        self.queries = Queries(self._store)
        self.mapper: EventMapper = EventMapper()
        self.measures = Measures()
        self.writer = Writer(self._store.session, self.mapper, self.clock, self.measures)
        self.alarm_dispatcher = AlarmDispatcher(
            self.writer, alarm_log or AlarmLog(), remake_what_is_damaged, self.measures
        )
        self.alarm_clock = AlarmClock(
            self._store.engine, self.alarm_dispatcher, self._next_look, self.clock, self.sweep
        )
        self._lookout = Lookout(self.writer, self.alarm_clock, self.alarm_dispatcher, self._backlog)
        self._census = Question(self._take_census)
        self._asking = threading.Lock()
        self._counted: tuple[float, Census | StoreUnavailable] | None = (
            None  # and when, time.monotonic()
        )
        self._watch = self._store.watch(self.alarm_clock.wake_for)
        self._kept_attempts = kept_attempts
        self._token = uuid4().hex  # of this process, among those that serve
        super().__init__()

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        return Environment(name, env)  # the process's environment decides nothing here

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        return StoreFactory(Recorder(self.queries, self.writer, self.mapper))

    def construct_mapper(self) -> Mapper[str]:
        return self.mapper

    def construct_recorder(self) -> ApplicationRecorder:
        return self.factory.application_recorder()

    def start(self, *, alarms: bool = True) -> None:
        """Starts the writer, and the alarm clock unless told not to yet."""
        self._store.refuse_after_fork()
        self.writer.start()
        if alarms:
            self.start_alarms()

    def start_alarms(self) -> None:
        self.alarm_clock.start()
        self._watch.start()

    def stop(self) -> None:
        self._watch.stop()
        self.alarm_clock.stop()
        self.writer.stop()
        self._store.close()

    def hold(self, name: str, ttl_seconds: int) -> Reservation:
        """Holds it for so long from now. Returns the state; raises InvalidReservationId
        or InvalidTtl."""
        state: Reservation = self._execute(HoldReservation(aggregate_id(name), ttl_seconds))
        self.alarm_clock.wake_for(state.expires_at_ms)
        return state

    def expire(self, name: str, now_ms: int) -> tuple[Reservation | None, bool]:
        """Takes the alarm's path with an explicit clock, as a test or a replay does.

        Returns the state (None if never held) and whether this call changed it. Raises
        InvalidReservationId or InvalidNow.
        """
        found: tuple[Reservation | None, bool] = self._execute(
            ExpireReservation(aggregate_id(name), now_ms)
        )
        return found

    def act(self, command: Command) -> Answered:
        """Runs a command on a hold with terms or an item, and returns what it answers."""
        answered: Answered = self._execute(command)
        if command.alarm_at_ms is not None:
            self.alarm_clock.wake_for(command.alarm_at_ms)
        return answered

    def get(self, name: str) -> Reservation | None:
        """The state now, None if it was never held. Raises InvalidReservationId."""
        aggregate_id(name)
        return self.queries.reservation(name)

    def quick_reader(self) -> QuickReader | None:
        """Reads that need not wait, for an event loop; None if the store has none."""
        return self._store.quick_reader()

    def redrive(self, name: str) -> bool:
        """Gives the parked alarm of a reservation or an object (`Counter/foo`) a fresh
        start. Whether there is one to run now."""
        redriven: bool = self._execute(RedriveAlarm(id_of(name)))
        self.alarm_clock.wake_for(0)
        return redriven

    def redrive_all(self) -> int:
        """The same for all that are parked. How many there were."""
        redriven, after = 0, ""
        while parked := self.queries.parked(SWEEP_LIMIT, after):
            redriven += sum(self.redrive(name_of(i)) for i in parked)
            after = parked[-1]
        return redriven

    @property
    def is_deleted(self) -> bool:
        """Whether the namespace was deleted while this process served it."""
        return self.alarm_dispatcher.is_deleted

    def sweep(self) -> int:
        """Repairs reservations whose read model and alarm disagree, and says that this
        process is there. How many there were."""
        self._execute(NoteServer(self._token, this_process()))
        self._execute(ForgetAnswers())
        self._forget_attempts()
        repaired = 0
        while strays := self._strays():
            mended = self._execute(Reproject(strays))
            logger.warning(
                "%d inconsistent rows found, %d repaired from the log", len(strays), mended
            )
            repaired += mended
            if mended < len(strays):
                break  # what the log cannot tell stays for `log verify` to report
        return repaired

    def _forget_attempts(self) -> None:
        """A few at a time, so that nobody waits for it long."""
        oldest = self.queries.attempt_to_keep(self._kept_attempts)
        while oldest is not None and self._execute(ForgetAttempts(oldest)):
            pass

    def _strays(self) -> list[str]:
        """Takes as long as it takes: it looks at every row."""
        with self._store.read_transaction() as reads:
            return Queries(reads.rows).strays(SWEEP_LIMIT)

    def _next_look(self, scope: AlarmScope) -> float | None:
        return self.queries.next_look(scope, self.clock.now_ms())

    def _backlog(self) -> Backlog:
        return backlog_of(self.queries, self.alarm_dispatcher, self.clock.now_ms())

    def readiness(self) -> Readiness:
        """Never waits for the write lock, nor longer than a second for an answer."""
        return self._lookout.readiness()

    def census(self) -> Census:
        """Counts over the whole store, a scan: taken at most every CENSUS_EVERY_SECONDS, for all
        who ask. Raises StoreUnavailable if it took too long, for all of them too."""
        with self._asking:
            now = time.monotonic()
            if self._counted is None or now - self._counted[0] >= CENSUS_EVERY_SECONDS:
                try:
                    self._counted = now, self._census.answer(CENSUS_SECONDS)
                except (ReservationExpiryError, TimeoutError) as error:
                    self._counted = now, StoreUnavailable(f"nothing was counted: {error}")
            found = self._counted[1]
        if isinstance(found, StoreUnavailable):
            raise found
        return found

    def _take_census(self) -> Census:
        now_ms = self.clock.now_ms()
        backlog_ms, parked = self.queries.backlog(self.alarm_dispatcher.scope, now_ms)
        head = self.queries.head().position
        return Activity(self.queries.reader).census(backlog_ms, parked, head, now_ms)

    def _execute(self, work: Work) -> Any:
        self._store.refuse_after_fork()
        return self.writer.execute(work)
