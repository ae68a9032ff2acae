"""The alarm rules: how often a failing alarm is tried, and when.

The figures are those of Cloudflare's Durable Objects, read from workerd's source and
measured there: a first retry 2 s after the failure, doubling, 6 retries at most, and
up to a quarter of the delay added at random so that bundled retries spread out
(worker-interface.h ALARM_RETRY_START_SECONDS, ALARM_RETRY_MAX_TRIES;
alarm-scheduler.h RETRY_JITTER_FACTOR). What differs here: an alarm that is given up
is parked where people can see it and run it again, not dropped.
"""

from typing import Literal

FIRST_RETRY_DELAY_MS = 2_000
MAX_RETRIES = 6
MAX_ATTEMPTS = 1 + MAX_RETRIES
JITTER = 0.25

# A number from here on and below is, as seconds, a time from 1973 to 5138; as milliseconds, one
# from the first three years after 1970, which nobody means.
SECONDS_FROM, SECONDS_BELOW = 10**8, 10**11

# Of those that were under way together when their process ended, so many times fewer are
# begun together again: the one that ends it is found in few deaths, and the others, which
# may be hundreds and slow, need not go one by one for it.
COMPANY_SHARE = 16

Outcome = Literal["ok", "rejected", "retry", "parked", "superseded"]


def looks_like_seconds(at_ms: float) -> bool:
    """Whether somebody who gave this for milliseconds has most likely given seconds.

    Small numbers do not: 1 is a common way to say "long ago, so now".
    """
    return SECONDS_FROM <= at_ms < SECONDS_BELOW


def retry_delay_ms(attempts: int) -> int:
    """How long to wait after `attempts` attempts, jitter aside."""
    return FIRST_RETRY_DELAY_MS * int(2 ** (attempts - 1))


def next_attempt_at_ms(attempts: int, failed_at_ms: int, random: float) -> int | None:
    """When to try again after `attempts` attempts, the last of which failed.

    `random` is uniform in [0, 1). Returns Unix milliseconds, or None when the attempts
    are used up and the alarm is to be parked.
    """
    if attempts > MAX_RETRIES:
        return None
    delay_ms = retry_delay_ms(attempts)
    return failed_at_ms + delay_ms + int(delay_ms * JITTER * random)


def company_after(together: int) -> int:
    """How many of `together` that were under way when their process ended may be begun at
    once the next time. One of them may have ended it; when one is alone, it is known.
    """
    return max(together // COMPANY_SHARE, 1)


def not_before_ms(superseded: int, failed_at_ms: int) -> int:
    """The earliest time for an alarm that was set by a handler which then failed.

    `superseded` counts such failures in a row, this one included. The first may be
    followed at any time; each further one waits as a retry would. Cloudflare's runtime
    has no such limit, so that a handler which sets an alarm for now and fails runs
    without end.
    """
    attempts = min(superseded - 1, MAX_RETRIES)
    return failed_at_ms + (retry_delay_ms(attempts) if attempts else 0)
