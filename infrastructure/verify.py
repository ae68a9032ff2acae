"""Is the database still what its log says?

Two passes over one snapshot, beside a running service. By name: every aggregate is
replayed and held against its read-model row and its alarm, and its history against the
rules. By position: no gap, every checksum, every id ours, and the log as long as was
ever committed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from domain.reservation import ID_PREFIX, is_name
from infrastructure.checksum import chain
from infrastructure.comparison import Difference, compare
from infrastructure.event_mapper import EventMapper
from infrastructure.sqlite.database import Database
from infrastructure.sqlite.snapshot import Snapshot

CHUNK_NAMES = 1_000
REPORTED_DIFFERENCES = 1_000


@dataclass(slots=True)
class VerifyReport:
    """`found` counts all differences, `differences` has the first of them."""

    events: int = 0
    aggregates: int = 0
    head: int = 0
    digest: str = ""
    found: int = 0
    differences: list[Difference] = field(default_factory=list)

    def add(self, *differences: Difference) -> None:
        self.found += len(differences)
        room = REPORTED_DIFFERENCES - len(self.differences)
        self.differences += differences[: max(room, 0)]


Progress = Callable[[int], object]


def verify(
    database: Database, mapper: EventMapper, progress: Progress = lambda events: None
) -> VerifyReport:
    """Checks everything, changes nothing. `progress` hears of each batch of events read,
    each event twice in all. Raises StoreError if the database does not answer."""
    report = VerifyReport()
    with database.snapshot() as connection:
        snapshot = Snapshot(connection)
        report.head, head_checksum, projected = snapshot.head()
        report.digest = head_checksum.hex()
        if projected != report.head:
            problem = f"the projections stand at position {projected}, the log at {report.head}"
            report.add(Difference("", projected, problem))
        _verify_aggregates(snapshot, mapper, report, progress)
        _verify_positions(snapshot, head_checksum, report, progress)
    return report


def _verify_aggregates(
    snapshot: Snapshot, mapper: EventMapper, report: VerifyReport, progress: Progress
) -> None:
    name: str | None = ""
    while name is not None:
        chunk = snapshot.chunk(name, CHUNK_NAMES)
        found = compare(chunk, mapper)
        report.aggregates += found.aggregates
        report.add(*found.differences)
        progress(found.events)
        name = chunk.last_name


def _verify_positions(
    snapshot: Snapshot, head_checksum: bytes, report: VerifyReport, progress: Progress
) -> None:
    last, previous, known_id = 0, b"", ""
    for page in snapshot.log():
        for position, originator_id, version, topic, state, recorded_at_ms, checksum in page:
            if position != last + 1:
                report.add(*_gap(last, position))
            elif checksum != chain(
                previous, position, originator_id, version, topic, recorded_at_ms, state
            ):
                problem = "does not match its checksum: the event, or the one before, was altered"
                report.add(Difference(originator_id, position, problem))
            if originator_id != known_id and not is_ours(originator_id):
                report.add(Difference(originator_id, position, "is not an id of ours"))
            known_id = originator_id
            last, previous = position, checksum
        report.events += len(page)
        progress(len(page))
    if last != report.head:
        problem = f"the log ends at position {last}, but position {report.head} was committed"
        report.add(Difference("", last, problem))
    elif previous != head_checksum:
        report.add(Difference("", last, "the head has another checksum than the last event"))


def is_ours(originator_id: str) -> bool:
    return originator_id.startswith(ID_PREFIX) and is_name(originator_id[len(ID_PREFIX) :])


def _gap(last: int, position: int) -> Iterator[Difference]:
    missing = f"{last + 1}" if position == last + 2 else f"{last + 1} to {position - 1}"
    yield Difference("", last + 1, f"the log has no events at position {missing}")
