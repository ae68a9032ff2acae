"""Is the database still what its log says?

Two walks beside a running service. By name: every aggregate is replayed and held
against its read-model row and its alarm, and its history against the rules. By
position: no gap, every checksum, every id ours, and the log as long as was ever
committed.

Both walks are cut into parts that need nothing of each other: a range of names has
whole histories, and a range of positions begins at the checksum that is stored before
it (and is itself checked by the range before). So several processes can share them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from domain.durable_object import OBJECT_PREFIX, parse_object_id
from domain.reservation import ID_PREFIX, is_name
from infrastructure.checksum import GENESIS, chain
from infrastructure.comparison import Difference, compare
from infrastructure.event_mapper import EventMapper
from infrastructure.objects.object_comparison import CHUNK_OBJECTS, compare_objects
from infrastructure.sql.chunks import AFTER_ALL_NAMES
from infrastructure.sql.snapshot import Snapshot
from infrastructure.store import Store

CHUNK_NAMES = 1_000
REPORTED_DIFFERENCES = 1_000
PART_EVENTS = 100_000


@dataclass(slots=True)
class VerifyReport:
    """`found` counts all differences, `differences` has the first of them.

    `head` and `digest` are those of the log when verifying began; `aggregates` may count
    some that were made since.
    """

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

    def join(self, part: "VerifyReport") -> None:
        self.events += part.events
        self.aggregates += part.aggregates
        self.add(*part.differences)
        self.found += part.found - len(part.differences)


@dataclass(frozen=True, slots=True)
class NameRange:
    """The names behind `after` up to and with `upto`."""

    after: str
    upto: str


@dataclass(frozen=True, slots=True)
class PositionRange:
    """The positions behind `after` up to and with `upto`."""

    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class AllObjects:
    """The durable objects, whatever their number."""


Part = NameRange | PositionRange | AllObjects
Progress = Callable[[int], object]
RunParts = Callable[[Iterable[Part]], Iterable[VerifyReport]]


def verify(
    store: Store, mapper: EventMapper, progress: Progress = lambda events: None
) -> VerifyReport:
    """Checks everything, changes nothing. `progress` hears of each batch of events read,
    each event twice in all. Raises StoreError if the database does not answer."""
    return verify_with(
        store, lambda parts: (verify_part(store, mapper, part, progress) for part in parts)
    )


def verify_with(store: Store, run_parts: RunParts) -> VerifyReport:
    """`verify`, with the parts left to `run_parts`."""
    with store.snapshot() as snapshot:
        report = _verify_head(snapshot)
        parts = [
            AllObjects(),
            *_position_ranges(report.head),
            *_name_ranges(snapshot, report.head),
        ]
    for part in run_parts(parts):
        report.join(part)
    report.differences.sort(key=lambda difference: difference.position or 0)
    return report


def verify_part(
    store: Store, mapper: EventMapper, part: Part, progress: Progress = lambda events: None
) -> VerifyReport:
    """What one part brings, read from one commit."""
    with store.snapshot() as snapshot:
        if isinstance(part, NameRange):
            return _verify_names(snapshot, mapper, part, progress)
        if isinstance(part, AllObjects):
            return _verify_objects(snapshot, mapper, progress)
        return _verify_positions(snapshot, part, progress)


def _verify_head(snapshot: Snapshot) -> VerifyReport:
    position, checksum, projected = snapshot.head()
    report = VerifyReport(head=position, digest=checksum.hex())
    if projected != position:
        problem = f"the projections stand at position {projected}, the log at {position}"
        report.add(Difference("", projected, problem))
    last = snapshot.last_position()
    if last != position:
        problem = f"the log ends at position {last}, but position {position} was committed"
        report.add(Difference("", last, problem))
    elif snapshot.checksum_at(last) not in (checksum, None):
        report.add(Difference("", last, "the head has another checksum than the last event"))
    return report


def _position_ranges(head: int) -> Iterator[PositionRange]:
    for after in range(0, head, PART_EVENTS):
        yield PositionRange(after, min(after + PART_EVENTS, head))


def _name_ranges(snapshot: Snapshot, head: int) -> Iterator[NameRange]:
    """Ranges with roughly PART_EVENTS events each, the last one open to the end.

    Their bounds are the names at evenly spread positions: a sample of where events are.
    """
    parts = -(-head // PART_EVENTS)
    sampled = sorted({*snapshot.names_at(range(1, head, max(head // (16 * parts or 1), 1)))})
    bounds = sampled[:: max(len(sampled) // max(parts, 1), 1)][1:]
    for after, upto in pairwise(["", *bounds, AFTER_ALL_NAMES]):
        yield NameRange(after, upto)


def _verify_names(
    snapshot: Snapshot, mapper: EventMapper, names: NameRange, progress: Progress
) -> VerifyReport:
    report, name = VerifyReport(), names.after
    while name is not None:
        chunk = snapshot.chunk(name, CHUNK_NAMES, names.upto)
        found = compare(chunk, mapper)
        report.aggregates += found.aggregates
        report.add(*found.differences)
        progress(found.events)
        name = chunk.last_name
    return report


def _verify_objects(snapshot: Snapshot, mapper: EventMapper, progress: Progress) -> VerifyReport:
    report, after = VerifyReport(), OBJECT_PREFIX
    while after is not None:
        chunk = snapshot.object_chunk(after, CHUNK_OBJECTS)
        found = compare_objects(chunk, mapper)
        report.aggregates += found.aggregates
        report.add(*found.differences)
        progress(found.events)
        after = chunk.last_id
    return report


def _verify_positions(
    snapshot: Snapshot, positions: PositionRange, progress: Progress
) -> VerifyReport:
    report, last, known_id = VerifyReport(), positions.after, ""
    previous = snapshot.checksum_at(last) if last else GENESIS
    for page in snapshot.log(last, positions.upto):
        for position, originator_id, version, topic, state, recorded_at_ms, checksum in page:
            if position != last + 1:
                report.add(*_gap(last, position))
            elif previous is not None and checksum != chain(
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
    if last != positions.upto and snapshot.last_position() > positions.upto:
        report.add(*_gap(last, positions.upto + 1))
    return report


def is_ours(originator_id: str) -> bool:
    """Whether it is an id that a reservation or a durable object can have."""
    if originator_id.startswith(ID_PREFIX):
        return is_name(originator_id[len(ID_PREFIX) :])
    return parse_object_id(originator_id) is not None


def _gap(last: int, position: int) -> Iterator[Difference]:
    missing = f"{last + 1}" if position == last + 2 else f"{last + 1} to {position - 1}"
    yield Difference("", last + 1, f"the log has no events at position {missing}")
