"""What happens when alarms are due: claim a batch, settle it, say how it went.

This is the work; when it is done, and in which thread, is `alarm_clock.py`'s business.

An error is either the database's as a whole or one alarm's own (`is_of_one`). The first
gives all claims back uncounted, and nothing is claimed for a while. The second is looked for
by halves, and counted as that alarm's failure alone.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, Protocol

from reservation_expiry.domain.ids import is_reservation
from reservation_expiry.infrastructure.alarms.attempt import Attempt, Claim
from reservation_expiry.infrastructure.alarms.claims import (
    RESERVATIONS,
    ClaimDueAlarms,
    Claimed,
    FailAlarms,
    GiveBackAlarms,
    SettleAlarms,
)
from reservation_expiry.infrastructure.alarms.company import NOBODY, Crowd
from reservation_expiry.infrastructure.alarms.halves import by_halves
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.errors import (
    LogDeleted,
    OutcomeUnknown,
    StoreDamaged,
    is_of_one,
)
from reservation_expiry.infrastructure.measures import Measures
from reservation_expiry.infrastructure.stores.row_types import AlarmScope
from reservation_expiry.infrastructure.unit_of_work import Work
from reservation_expiry.infrastructure.writer import Writer

CLAIM_LIMIT = 500  # alarms in a batch
LEASE_MS = 5_000
LEASE_PER_BATCH_TIME = 10  # a lease is at least this many times what a batch takes
BATCHES_MEASURED = 9  # lately; of them the middle one counts, so that one freeze does not
LOOK_AGAIN_SECONDS = 60.0  # whether it is a projection that is damaged
NAMED = 5  # of those that a line of the log is about
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 2.0  # after claims were given back; it doubles

logger = logging.getLogger(__name__)


class ObjectAlarms(Protocol):
    """Whoever runs the alarms of durable objects in this process (objects/alarms.py)."""

    @property
    def owner(self) -> str: ...

    def prefixes(self) -> tuple[str, ...]:
        """What the ids of alarms begin with that it can take on now."""
        ...

    def crowd(self) -> tuple[Crowd, Sequence[Claim]]:
        """What is under way of them."""
        ...

    def expect(self, claimed: Claimed) -> None:
        """Hears what was claimed, before it is given them."""
        ...

    def take(self, claims: list[Claim]) -> None:
        """Sees to these, and to their leases, from now on. Returns at once."""
        ...

    def parked(self, alarm_ids: list[str]) -> None:
        """Hears of alarms that were given up before they could be run."""
        ...


NextLook = Callable[[AlarmScope], float | None]
"""The earliest `next_run_time` in a scope, in Unix seconds."""

Remake = Callable[[Callable[[Work], Any], StoreDamaged], bool]
"""Makes damaged projections anew with `execute`. Returns whether there were any."""


class AlarmDispatcher:
    """`claim()` and `settle(claims)`, each safe to call from any one thread at a time.

    `counts` has the number of attempts by outcome, and of leases that lapsed.
    """

    def __init__(
        self, writer: Writer, log: AlarmLog, remake: Remake, measures: Measures | None = None
    ) -> None:
        self._writer = writer
        self._remake = remake
        self._log = log
        self._measures = measures or Measures()
        self._batches_ms: deque[float] = deque(maxlen=BATCHES_MEASURED)
        self._open: dict[str, tuple[Claim, float]] = {}  # and since when, time.monotonic()
        self._not_given_back: deque[list[Claim]] = deque()
        self._looked_at = -LOOK_AGAIN_SECONDS  # at the projections, and found them whole
        self._pause = 0.0  # seconds
        self._paused_until = 0.0  # time.monotonic()
        self.counts: Counter[str] = Counter()
        self.objects: ObjectAlarms | None = None
        self.is_deleted = False  # the log, while this process served it
        self.begin()

    def begin(self) -> None:
        """From now on `claimed_at` and `settled_at` tell when that was done last."""
        self.claimed_at = self.settled_at = time.monotonic()

    @property
    def scope(self) -> AlarmScope:
        """Which alarms this process can run now."""
        if self.objects is None:
            return RESERVATIONS
        theirs = self.objects.prefixes()
        if not theirs:
            return RESERVATIONS
        return AlarmScope((*RESERVATIONS.prefixes, *theirs), self.objects.owner)

    @property
    def lease_ms(self) -> int:
        if not self._batches_ms:
            return LEASE_MS
        return max(LEASE_MS, int(LEASE_PER_BATCH_TIME * median(self._batches_ms)))

    @property
    def pause_seconds(self) -> float:
        """For how long still nothing is to be claimed, for what was had to be given back."""
        return max(0.0, self._paused_until - time.monotonic())

    def claim(self) -> list[Claim]:
        """The next batch of due alarms, ours until their lease ends.

        Raises StoreError if the database does not answer.
        """
        if self.is_deleted:
            return []
        while self._not_given_back and self.give_back(self._not_given_back.popleft()):
            pass
        claimed = self._claimed()
        self.claimed_at = time.monotonic()
        self._open_up(claimed.claims)
        try:
            self._note(claimed)
        except BaseException:
            self.back_off(claimed.claims)
            raise
        return claimed.claims

    def unsettled(self, for_seconds: float) -> list[Claim]:
        """Claims on reservations that were made so long ago, and of which nothing was heard
        since. If one is claimed again, its time runs on."""
        before = time.monotonic() - for_seconds
        return [claim for claim, since in list(self._open.values()) if since < before]

    def close(self, claims: Iterable[Claim]) -> None:
        """They are settled, or not this process's any more."""
        for claim in claims:
            self._open.pop(claim.id, None)

    def _open_up(self, claims: list[Claim]) -> None:
        now = time.monotonic()
        for claim in claims:
            if is_reservation(claim.id):  # objects' handlers may take a quarter of an hour
                _, since = self._open.get(claim.id, (claim, now))
                self._open[claim.id] = claim, since

    def _claimed(self) -> Claimed:
        try:
            return self._claim()
        except LogDeleted as error:
            self.is_deleted = True
            logger.error("nothing is served any more: %s", error)
            return Claimed()
        except StoreDamaged as error:
            if not self.remake(error):
                raise
            return self._claim()

    def _claim(self) -> Claimed:
        crowd, under_way = (NOBODY, ()) if self.objects is None else self.objects.crowd()
        work = ClaimDueAlarms(CLAIM_LIMIT, self.lease_ms, self.scope, crowd, under_way)
        try:
            claimed: Claimed = self._writer.execute(work)
            return claimed
        except OutcomeUnknown:
            self._not_given_back.append(work.claims)  # which it may still come to make
            raise

    def remake(self, error: StoreDamaged) -> bool:
        """Makes the projections anew whose tables are damaged. Whether there were any; if
        not, that is believed for a while."""
        if time.monotonic() - self._looked_at < LOOK_AGAIN_SECONDS:
            return False
        self._looked_at = time.monotonic()
        remade = self._remake(self._writer.execute, error)
        if remade:
            self._looked_at = -LOOK_AGAIN_SECONDS
        return remade

    def _note(self, claimed: Claimed) -> None:
        if self.objects is not None:
            self.objects.expect(claimed)
        self.counts["lapsed"] += claimed.lapsed
        self.counts["parked"] += len(claimed.parked)
        if claimed.parked and self.objects is not None:
            self.objects.parked(claimed.parked)
        if claimed.lapsed:
            logger.warning("%d alarms were claimed before and not settled in time", claimed.lapsed)

    def settle(self, claims: list[Claim]) -> None:
        """Runs the batch. Never raises for trouble with one alarm or with the database."""
        ours = [claim for claim in claims if is_reservation(claim.id)]
        theirs = [claim for claim in claims if not is_reservation(claim.id)]
        try:
            if theirs:
                self._hand_over(theirs)
                theirs = []
            if ours:
                self._settle(ours)
        except Exception:
            logger.exception("a batch of %d alarms could not be settled", len(claims))
            self.back_off([*ours, *theirs])

    def _hand_over(self, theirs: list[Claim]) -> None:
        if self.objects is None:
            raise RuntimeError("nobody here runs the alarms of objects")
        self.objects.take(theirs)
        self.settled_at = time.monotonic()

    def _settle(self, claims: list[Claim]) -> None:
        failed = self._failed_of(claims)
        damage = next((e for _, e in failed if isinstance(e, StoreDamaged)), None)
        if damage is not None and self.remake(damage):
            failed = self._failed_of([claim for claim, _ in failed])
        elif damage is not None:
            names = some_of([claim for claim, error in failed if isinstance(error, StoreDamaged)])
            logger.error("%s cannot be settled: %s", names, damage)
        if failed:
            self._fail(failed)

    def _failed_of(self, claims: list[Claim]) -> list[tuple[Claim, Exception]]:
        """Settles those that can be, and backs off if the database cannot now. The rest."""
        failed: list[tuple[Claim, Exception]] = []
        for part, attempts, error in by_halves(claims, self._run):
            if attempts is not None:
                self.report(attempts)
            elif error is not None and is_of_one(error):
                failed += [(claim, error) for claim in part]
            else:
                logger.warning("%d alarms wait for the database: %s", len(part), error)
                self.back_off(part)
        return failed

    def _run(self, claims: list[Claim]) -> list[Attempt]:
        try:
            attempts: list[Attempt] = self._writer.execute(SettleAlarms(claims))
        except StoreDamaged as error:  # before it is looked for alarm by alarm, which takes long
            if len(claims) == 1 or not self.remake(error):
                raise
            attempts = self._writer.execute(SettleAlarms(claims))
        self._batches_ms.append(self._writer.last_transaction_ms)
        self._pause = 0.0
        return attempts

    def _fail(self, failed: list[tuple[Claim, Exception]]) -> None:
        def run(part: list[tuple[Claim, Exception]]) -> list[Attempt]:
            attempts: list[Attempt] = self._writer.execute(FailAlarms(part))
            return attempts

        for part, attempts, trouble in by_halves(failed, run):
            if attempts is not None:
                self.report(attempts)
            else:
                names = some_of([claim for claim, _ in part])
                logger.warning("the failures of %s wait for leases to end: %s", names, trouble)

    def back_off(self, claims: list[Claim]) -> None:
        """Releases them, and has nothing claimed for a while, each time a longer one until
        a batch is settled again: what is due at once would come back at once."""
        self._pause = min(2 * self._pause or PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._paused_until = time.monotonic() + self._pause
        self.give_back(claims)

    def give_back(self, claims: list[Claim]) -> bool:
        """Gives claims back, uncounted; later, if the database does not answer now. Whether
        it did."""

        def run(part: list[Claim]) -> bool:
            self._writer.execute(GiveBackAlarms(part))
            return True

        for part, is_done, error in by_halves(claims, run):
            if is_done:
                self.close(part)
                self.counts["released"] += len(part)
            elif error is not None and is_of_one(error):
                logger.warning("%s waits for its lease to end: %s", some_of(part), error)
            else:
                self._not_given_back.append(part)
                return False
        return True

    def report(self, attempts: list[Attempt]) -> None:
        """Counts them and writes their lines."""
        if not attempts:
            return
        self.settled_at = time.monotonic()
        self.close(attempt.claim for attempt in attempts)
        self.counts.update(attempt.outcome for attempt in attempts)
        for attempt in attempts:
            self._measures.lateness.observe(attempt.lateness_ms / 1000)
            if attempt.outcome == "parked":
                logger.error("the alarm of %s is parked: %s", attempt.claim.id, attempt.error)
        self._log.write(attempts)


def some_of(claims: list[Claim]) -> str:
    """The ids of a few, and how many more there are."""
    more = len(claims) - NAMED
    names = ", ".join(claim.id for claim in claims[:NAMED])
    return names + (f" and {more} more" if more > 0 else "")
