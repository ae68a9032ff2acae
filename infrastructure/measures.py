"""What this process has done, counted as it goes: plain numbers, for whoever exposes them.

Counting must cost nobody anything: no lock, no library, no file. So each number has one
thread that adds to it, and who reads them may see one of a moment ago. What they are called
outside is `api/metrics.py`'s business.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

# Upper bounds, in seconds; the last bucket, beyond them, is implied.
LATENESS_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
COMMIT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
BATCH_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0)


class Tally:
    """How many observations fell between which bounds, and what they add up to."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Measures:
    """`events` by their type's name and `batch` and `commit` are the writer's to add to,
    `lateness` the alarms', `streams` (open now) and `requests` (statuses by method and route)
    the event loop's."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.batch = Tally(BATCH_BOUNDS)
        self.commit = Tally(COMMIT_BOUNDS)
        self.lateness = Tally(LATENESS_BOUNDS)
        self.streams = 0
        self.requests: dict[tuple[str, str], Counter[int]] = {}

    def requests_of(self, method: str, route: str) -> Counter[int]:
        """By status, for who has answered one to add to."""
        return self.requests.setdefault((method, route), Counter())
