"""What happens when alarms are due: claim a batch, settle it, say how it went.

This is the work; when it is done, and in which thread, is `alarm_clock.py`'s business.
"""

import logging
from collections import Counter, deque
from collections.abc import Sequence
from statistics import median
from typing import Protocol

from domain.reservation import ID_PREFIX
from infrastructure.alarm_commands import (
    RESERVATIONS,
    Attempt,
    Claim,
    ClaimDueAlarms,
    Claimed,
    FailAlarm,
    ReleaseAlarms,
    SettleAlarms,
)
from infrastructure.alarm_company import NOBODY, Crowd
from infrastructure.alarm_log import AlarmLog
from infrastructure.errors import StoreError, VersionConflict
from infrastructure.projections import AlarmScope
from infrastructure.writer import Writer

CLAIM_LIMIT = 500  # alarms in a batch
LEASE_MS = 5_000
LEASE_PER_BATCH_TIME = 10  # a lease is at least this many times what a batch takes
BATCHES_MEASURED = 9  # lately; of them the middle one counts, so that one freeze does not

logger = logging.getLogger(__name__)


class ObjectAlarms(Protocol):
    """Whoever runs the alarms of durable objects in this process (objects/alarms.py)."""

    owner: str

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


class AlarmHandler:
    """`claim()` and `settle(claims)`, each safe to call from any one thread at a time.

    `counts` has the number of attempts by outcome, and of leases that lapsed.
    """

    def __init__(self, writer: Writer, log: AlarmLog) -> None:
        self._writer = writer
        self._log = log
        self._batches_ms: deque[float] = deque(maxlen=BATCHES_MEASURED)
        self._unreleased: list[Claim] = []
        self.counts: Counter[str] = Counter()
        self.objects: ObjectAlarms | None = None

    @property
    def scope(self) -> AlarmScope:
        """Which alarms this process can run now."""
        theirs = () if self.objects is None else self.objects.prefixes()
        if not theirs:
            return RESERVATIONS
        return AlarmScope((*RESERVATIONS.prefixes, *theirs), self.objects.owner)

    @property
    def lease_ms(self) -> int:
        if not self._batches_ms:
            return LEASE_MS
        return max(LEASE_MS, int(LEASE_PER_BATCH_TIME * median(self._batches_ms)))

    def claim(self) -> list[Claim]:
        """The next batch of due alarms, ours until their lease ends.

        Raises StoreError if the database does not answer.
        """
        unreleased, self._unreleased = self._unreleased, []
        self.release(unreleased)
        crowd, under_way = (NOBODY, ()) if self.objects is None else self.objects.crowd()
        claim = ClaimDueAlarms(CLAIM_LIMIT, self.lease_ms, self.scope, crowd, under_way)
        claimed = self._writer.execute(claim)
        if self.objects is not None:
            self.objects.expect(claimed)
        self.counts["lapsed"] += claimed.lapsed
        self.counts["parked"] += len(claimed.parked)
        if claimed.parked and self.objects is not None:
            self.objects.parked(claimed.parked)
        if claimed.lapsed:
            logger.warning("%d alarms were claimed before and not settled in time", claimed.lapsed)
        return claimed.claims

    def settle(self, claims: list[Claim]) -> None:
        """Runs the batch. Never raises for trouble with one alarm or with the database."""
        if self.objects is not None:
            theirs = [claim for claim in claims if not claim.id.startswith(ID_PREFIX)]
            claims = [claim for claim in claims if claim.id.startswith(ID_PREFIX)]
            self.objects.take(theirs)
            if not claims:
                return
        try:
            attempts = self._writer.execute(SettleAlarms(claims))
        except StoreError as error:
            if isinstance(error, VersionConflict):
                self._settle_one_by_one(claims)
            else:
                logger.warning("%d alarms wait for the database: %s", len(claims), error)
                self.release(claims)
        except Exception:
            logger.exception("a batch of %d alarms failed and is run one by one", len(claims))
            self._settle_one_by_one(claims)
        else:
            self.report(attempts)
            self._batches_ms.append(self._writer.last_transaction_ms)

    def _settle_one_by_one(self, claims: list[Claim]) -> None:
        for claim in claims:
            try:
                attempts = self._writer.execute(SettleAlarms([claim]))
            except VersionConflict as error:
                # Decided under the write lock, so the log itself contradicts it: a failure.
                self._fail(claim, error)
            except StoreError:
                self.release([claim])
            except Exception as error:
                self._fail(claim, error)
            else:
                self.report(attempts)

    def _fail(self, claim: Claim, error: Exception) -> None:
        try:
            self.report([self._writer.execute(FailAlarm(claim, error))])
        except StoreError as trouble:
            logger.warning("the failure of %s waits for its lease to end: %s", claim.id, trouble)

    def release(self, claims: list[Claim]) -> None:
        """Gives claims back, uncounted; later, if the database does not answer now."""
        if not claims:
            return
        try:
            self._writer.execute(ReleaseAlarms(claims))
        except StoreError:
            self._unreleased += claims
        else:
            self.counts["released"] += len(claims)

    def report(self, attempts: list[Attempt]) -> None:
        """Counts them and writes their lines."""
        self.counts.update(attempt.outcome for attempt in attempts)
        for attempt in attempts:
            if attempt.outcome == "parked":
                logger.error("the alarm of %s is parked: %s", attempt.claim.id, attempt.error)
        self._log.write(attempts)
