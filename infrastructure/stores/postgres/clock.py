"""The database's clock, on a node.

Nodes agree on the time because none uses its own: every transaction asks the database,
in a round trip that it makes anyway, and between two of them (an alarm clock's looks are
at most a second apart) the node counts on from the last answer with a clock that nobody
sets. So a node whose time of day is wrong behaves like any other.
"""

from reservation_expiry.infrastructure.clock import SystemClock, elapsed_seconds


class DatabaseClock:
    """Safe from any thread. Until something was observed it is the system's clock."""

    def __init__(self) -> None:
        self._seen: tuple[int, float] | None = None

    def observe(self, now_ms: int) -> None:
        """Takes note of what the database's clock said in the answer that has just come.

        It stood there a moment ago, so ours is never ahead.
        """
        self._seen = (now_ms, elapsed_seconds())

    def now_ms(self) -> int:
        if self._seen is None:
            return SystemClock().now_ms()
        then_ms, at = self._seen
        return then_ms + int((elapsed_seconds() - at) * 1000)
