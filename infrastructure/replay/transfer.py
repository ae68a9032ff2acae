"""The log as a file: JSON Lines, documented in docs/events.md, gzip by name.

The first line says what the file is and what it must add up to; each further line is
one event, in order of position. An export is taken from one snapshot. An import is
checked line by line while it fills a database that nobody sees, which takes the
target's place only when everything has turned out right.
"""

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from reservation_expiry.infrastructure.checksum import GENESIS, chain
from reservation_expiry.infrastructure.errors import ImportRefused, UndecodableEvent
from reservation_expiry.infrastructure.event_mapper import EventMapper, Integer
from reservation_expiry.infrastructure.machine.files import opened_for_writing
from reservation_expiry.infrastructure.replay.verify import is_ours
from reservation_expiry.infrastructure.stores.opening import log_id_of
from reservation_expiry.infrastructure.stores.row_types import EventRow
from reservation_expiry.infrastructure.stores.store import Store

FORMAT = "reservation-expiry-log"
FORMAT_VERSION = 1
HEADER_LIMIT_BYTES = 4_096
LINE_LIMIT_BYTES = 64 * 1024 * 1024  # an event of 8 MiB, escaped, with room to spare
BATCH_EVENTS = 2_000


class Header(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The first line: what the file is, how many events follow, and their digest; and which
    log they are of, which releases before 0.2 do not say."""

    format: str
    version: int
    events: int
    digest: str
    logId: str | None = None


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One event. `state` is its JSON text as it stands in the log."""

    position: Integer
    id: str
    version: Integer
    topic: str
    recordedAt: Integer
    state: str
    checksum: str


Progress = Callable[[int], object]

_encode = msgspec.json.Encoder().encode


def export_log(
    store: Store,
    target: str,
    progress: Progress = lambda events: None,
    *,
    force: bool = False,
) -> int:
    """Writes the whole log to the file `target`, or to standard output for `-`.

    The file appears whole or not at all; an export that is there is replaced with `force`
    only, and nothing else ever is. Returns the number of events. Raises StoreError,
    FileRefused, OSError if the file cannot be written, and UndecodableEvent for a state that
    is not text.
    """
    with store.read_transaction() as reads, _opened_for_writing(target, force) as out:
        events, digest, _ = reads.head()
        log_id = log_id_of(store, reads)
        header = Header(FORMAT, FORMAT_VERSION, events, digest.hex(), log_id)
        out.write(_encode(header) + b"\n")
        for page in reads.log():
            out.write(b"".join(map(_line, page)))
            progress(len(page))
    return events


def read_log(
    source: str, mapper: EventMapper, progress: Progress = lambda events: None
) -> Iterator[list[EventRow]]:
    """The events of an exported file (`-`: standard input), checked, in batches.

    Raises ImportRefused, naming the line, for the first thing that is wrong: another
    format, an unknown topic, a state that cannot be decoded, a gap, a checksum, an end
    before the number of events or the digest of the header.
    """
    with _opened_for_reading(source) as lines:
        header = _header(lines)
        position, checksum, batch = 0, GENESIS, []
        for number, line in enumerate(lines, start=2):
            row = _row(line, number, position + 1, checksum, mapper)
            position, checksum = row[0], row[-1]
            batch.append(row)
            if len(batch) == BATCH_EVENTS:
                yield batch
                progress(len(batch))
                batch = []
        yield batch
        progress(len(batch))
    if (position, checksum.hex()) != (header.events, header.digest):
        raise ImportRefused(
            f"the file ends after {position} events, but its first line promises "
            f"{header.events} with digest {header.digest}"
        )


def read_store(
    store: Store, mapper: EventMapper, progress: Progress = lambda events: None
) -> Iterator[list[EventRow]]:
    """The events of another database, from one commit, checked as those of a file are."""
    with store.read_transaction() as reads:
        head, digest, _ = reads.head()
        position, checksum = 0, GENESIS
        for page in reads.log():
            for row in page:
                _check(row, f"event {position + 1}", position + 1, checksum, mapper)
                position, checksum = row[0], row[-1]
            yield page
            progress(len(page))
    if (position, checksum) != (head, digest):
        raise ImportRefused(f"the log ends at position {position}, but {head} was committed")


def _line(row: EventRow) -> bytes:
    position, originator_id, version, topic, state, recorded_at_ms, checksum = row
    try:
        text = state.decode()
    except (UnicodeDecodeError, AttributeError) as error:
        raise UndecodableEvent(f"the event at position {position} is not text") from error
    line = Line(position, originator_id, version, topic, recorded_at_ms, text, checksum.hex())
    return _encode(line) + b"\n"


_decode_line = msgspec.json.Decoder(Line).decode


def _row(line: bytes, number: int, expected: int, previous: bytes, mapper: EventMapper) -> EventRow:
    where = f"line {number}"
    try:
        found = _decode_line(line)
        state, checksum = found.state.encode(), bytes.fromhex(found.checksum)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ImportRefused(f"{where} is not an event of ours: {error}") from error
    facts = (found.position, found.id, found.version, found.topic)
    row = (*facts, state, found.recordedAt, checksum)
    _check(row, where, expected, previous, mapper)
    return row


def _check(row: EventRow, where: str, expected: int, previous: bytes, mapper: EventMapper) -> None:
    """Raises ImportRefused unless it is the event that follows."""
    position, originator_id, version, topic, state, recorded_at_ms, checksum = row
    try:
        mapper.decode(originator_id, version, topic, state)
    except UndecodableEvent as error:
        raise ImportRefused(f"{where} is not an event of ours: {error}") from error
    if position != expected:
        raise ImportRefused(f"{where} has position {position}, not {expected}")
    if not is_ours(originator_id):
        raise ImportRefused(f"{where} has {originator_id!r}, which is not an id of ours")
    right = chain(previous, position, originator_id, version, topic, recorded_at_ms, state)
    if checksum != right:
        raise ImportRefused(f"{where} (position {expected}) does not match its checksum")


def _header(lines: Iterator[bytes]) -> Header:
    try:
        header = msgspec.json.decode(next(lines, b""), type=Header)
    except msgspec.MsgspecError as error:
        raise ImportRefused(f"line 1 is not the header of an exported log: {error}") from error
    if header.format != FORMAT or header.version != FORMAT_VERSION:
        raise ImportRefused(
            f"line 1 says {header.format} version {header.version}; this release reads "
            f"{FORMAT} version {FORMAT_VERSION}"
        )
    return header


@contextmanager
def _opened_for_writing(target: str, force: bool) -> Iterator[BinaryIO]:
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with opened_for_writing(Path(target), is_export, force=force) as file:
        if target.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=file) as zipped:
                yield cast(BinaryIO, zipped)
        else:
            yield file


def is_export(path: Path) -> bool:
    """Whether the file begins as an exported log does, gzip or not."""
    for opener in (open, gzip.open):
        try:
            with opener(path, "rb") as file:
                _header(iter([file.readline(HEADER_LIMIT_BYTES)]))
                return True
        except (ImportRefused, EOFError, gzip.BadGzipFile, zlib.error):
            continue
    return False


@contextmanager
def _opened_for_reading(source: str) -> Iterator[Iterator[bytes]]:
    opened = nullcontext(sys.stdin.buffer) if source == "-" else _open(source)
    with opened as file:
        try:
            yield _limited(file)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ImportRefused(f"{source} is not a whole gzip file: {error}") from error


def _limited(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(LINE_LIMIT_BYTES):
        yield line


def _open(source: str) -> BinaryIO:
    if source.endswith(".gz"):
        return cast(BinaryIO, gzip.open(source, "rb"))
    return open(source, "rb")
