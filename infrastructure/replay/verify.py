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
from typing import Any

from reservation_expiry.domain.ids import (
    ID_PREFIX,
    OBJECT_PREFIX,
    is_name,
    is_reservation,
    item_name,
    parse_object_id,
    reservation_name,
)
from reservation_expiry.infrastructure.checksum import GENESIS, chain
from reservation_expiry.infrastructure.errors import DamagedLog, StoreDamaged
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.replay.comparison import Difference, Found, compare
from reservation_expiry.infrastructure.replay.item_comparison import compare_items
from reservation_expiry.infrastructure.replay.object_comparison import (
    CHUNK_OBJECTS,
    compare_objects,
)
from reservation_expiry.infrastructure.replay.past_damage import (
    Unreadable,
    chunks_past_damage,
    log_past_damage,
)
from reservation_expiry.infrastructure.stores.sql.chunks import AFTER_ALL_NAMES
from reservation_expiry.infrastructure.stores.sql.read_transaction import ReadTransaction
from reservation_expiry.infrastructure.stores.store import Store

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
    is_damaged: bool = False  # something could not be read

    def add(self, *differences: Difference) -> None:
        self.found += len(differences)
        room = REPORTED_DIFFERENCES - len(self.differences)
        self.differences += differences[: max(room, 0)]

    def cannot_read(self, originator_id: str, position: int | None, what: str) -> None:
        self.is_damaged = True
        self.add(Difference(originator_id, position, what))

    def join(self, part: "VerifyReport") -> None:
        self.events += part.events
        self.aggregates += part.aggregates
        self.add(*part.differences)
        self.found += part.found - len(part.differences)
        self.is_damaged |= part.is_damaged


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


@dataclass(frozen=True, slots=True)
class AllItems:
    """The items and the lines of holds that take units of them."""


Part = NameRange | PositionRange | AllObjects | AllItems
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
    with store.read_transaction() as reads:
        report = _verify_head(reads)
        parts: list[Part] = [
            AllObjects(),
            AllItems(),
            *_position_ranges(report.head),
            *_name_ranges(reads, report.head),
        ]
    for part in run_parts(parts):
        report.join(part)
    report.differences.sort(key=lambda difference: difference.position or 0)
    for finding in store.integrity(thorough=report.is_damaged):
        report.add(Difference("", None, finding))
    return report


def verify_part(
    store: Store, mapper: EventMapper, part: Part, progress: Progress = lambda events: None
) -> VerifyReport:
    """What one part brings, read from one commit. What cannot be read is in the report."""
    with store.read_transaction() as reads:
        if isinstance(part, PositionRange):
            return _verify_positions(reads, part, progress)
        report = VerifyReport()
        if isinstance(part, AllItems):
            try:
                report.add(*compare_items(reads.rows, mapper).differences)
            except StoreDamaged as error:
                report.cannot_read("", None, f"the items: {error}")
            return report
        chunks = (
            _name_chunks(reads, mapper, part, report)
            if isinstance(part, NameRange)
            else _object_chunks(reads, mapper, report)
        )
        for found in chunks:
            report.aggregates += found.aggregates
            report.add(*found.differences)
            progress(found.events)
        return report


def _verify_head(reads: ReadTransaction) -> VerifyReport:
    report = VerifyReport()
    try:
        head = reads.head()
        report.head, report.digest = head.position, head.checksum.hex()
        last = reads.last_position()
    except (DamagedLog, StoreDamaged) as error:
        report.cannot_read("", None, f"the log's head or its end: {error}")
        report.head = report.head or _last_if_known(reads)
        return report
    if head.projected_position != head.position:
        problem = f"the projections stand at position {head.projected_position}"
        problem += f", the log at {head.position}"
        report.add(Difference("", head.projected_position, problem))
    if last != head.position:
        problem = f"the log ends at position {last}, but position {head.position} was committed"
        report.add(Difference("", last, problem))
    elif _checksum_before(reads, last) not in (head.checksum, None):
        report.add(Difference("", last, "the head has another checksum than the last event"))
    return report


def _position_ranges(head: int) -> Iterator[PositionRange]:
    for after in range(0, head, PART_EVENTS):
        yield PositionRange(after, min(after + PART_EVENTS, head))


def _name_ranges(reads: ReadTransaction, head: int) -> Iterator[NameRange]:
    """Ranges with roughly PART_EVENTS events each, the last one open to the end.

    Their bounds are the names at evenly spread positions: a sample of where events are.
    """
    parts = -(-head // PART_EVENTS)
    try:
        names = {*reads.names_at(range(1, head, max(head // (16 * parts or 1), 1)))}
    except StoreDamaged:  # in one piece, then, which goes on behind the damage
        names = set()
    sampled = sorted(names)
    bounds = sampled[:: max(len(sampled) // max(parts, 1), 1)][1:]
    for after, upto in pairwise(["", *bounds, AFTER_ALL_NAMES]):
        yield NameRange(after, upto)


def _name_chunks(
    reads: ReadTransaction, mapper: EventMapper, names: NameRange, report: VerifyReport
) -> Iterator[Found]:
    """The names of a range, compared; those that cannot be read go into the report."""

    def read(after: str, size: int) -> tuple[Found, str | None]:
        chunk = reads.chunk(after, size, names.upto)
        return compare(chunk, mapper), chunk.last_name

    def next_after(after: str) -> str | None:
        found = reads.next_id(ID_PREFIX + after, ID_PREFIX + names.upto)
        return None if found is None else reservation_name(found)

    def note(name: str | None, after: str, error: StoreDamaged) -> None:
        _note_unreadable(report, None if name is None else ID_PREFIX + name, after, error)

    return chunks_past_damage(read, next_after, note, names.after, CHUNK_NAMES)


def _object_chunks(
    reads: ReadTransaction, mapper: EventMapper, report: VerifyReport
) -> Iterator[Found]:
    """The same of all objects."""

    def read(after: str, size: int) -> tuple[Found, str | None]:
        chunk = reads.object_chunk(after, size)
        return compare_objects(chunk, mapper), chunk.last_id

    def next_after(after: str) -> str | None:
        return reads.next_id(after, OBJECT_PREFIX + AFTER_ALL_NAMES)

    def note(object_id: str | None, after: str, error: StoreDamaged) -> None:
        _note_unreadable(report, object_id, after, error)

    return chunks_past_damage(read, next_after, note, OBJECT_PREFIX, CHUNK_OBJECTS)


def _note_unreadable(
    report: VerifyReport, originator_id: str | None, after: str, error: StoreDamaged
) -> None:
    what = "cannot be compared with its history" if originator_id else f"what follows {after!r}"
    report.cannot_read(originator_id or "", None, f"{what}: {error}")


def _verify_positions(
    reads: ReadTransaction, positions: PositionRange, progress: Progress
) -> VerifyReport:
    report, last = VerifyReport(), positions.after
    previous = _checksum_before(reads, last)
    for found in log_past_damage(reads, last, positions.upto):
        if isinstance(found, Unreadable):
            last, previous = found.upto, None
            which = f"{found.after + 1}"
            if found.upto > found.after + 1:
                which += f" to {found.upto}"
            report.cannot_read("", found.after + 1, f"position {which}: {found.why}")
            continue
        last, previous = _verify_page(report, found, last, previous)
        report.events += len(found)
        progress(len(found))
    if last != positions.upto and _last_if_known(reads) > positions.upto:
        report.add(*_gap(last, positions.upto + 1))
    return report


def _verify_page(
    report: VerifyReport, page: list[tuple[Any, ...]], last: int, previous: bytes | None
) -> tuple[int, bytes | None]:
    """The position and the checksum of its last event; `previous` is None if not known."""
    known_id = ""
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
    return last, previous


def _checksum_before(reads: ReadTransaction, position: int) -> bytes | None:
    """The checksum that the next event's is chained to, None if it is not there."""
    if position == 0:
        return GENESIS
    try:
        checksum = reads.checksum_at(position)
    except StoreDamaged:
        return None
    return checksum if isinstance(checksum, bytes) else None


def _last_if_known(reads: ReadTransaction) -> int:
    try:
        return reads.last_position()
    except StoreDamaged:
        return 0  # said already


def is_ours(originator_id: str) -> bool:
    """Whether it is an id that a reservation or a durable object can have."""
    if is_reservation(originator_id):
        return is_name(reservation_name(originator_id))
    return parse_object_id(originator_id) is not None or item_name(originator_id) is not None


def _gap(last: int, position: int) -> Iterator[Difference]:
    missing = f"{last + 1}" if position == last + 2 else f"{last + 1} to {position - 1}"
    yield Difference("", last + 1, f"the log has no events at position {missing}")
