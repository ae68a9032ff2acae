"""Between domain events and rows of the log.

The table of topics is closed. A topic is a stable name that we chose, never a Python
path: an unknown one is an error and nothing is imported to resolve it, and a class may
be renamed without orphaning a single row. State is compact JSON with the event's own
fields. A class that changes its fields gets a higher `version` and a step that lifts
each older state to the next, so that yesterday's log still loads.

A state may end with `by`: the name of the token with which its command came. It is no field
of any event, the rules know nothing of it, and states without it are as they always were.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import msgspec
from eventsourcing.persistence import JSONTranscoder, Mapper, StoredEvent

from reservation_expiry.domain.durable_object import (
    AlarmDeleted,
    AlarmHandled,
    AlarmSet,
    EventCancelled,
    RunEnded,
    RunOutcome,
    StorageWritten,
)
from reservation_expiry.domain.events import (
    AlarmScheduled,
    Cancelled,
    CapacitySet,
    Confirmed,
    Expired,
    Extended,
    Held,
    Released,
)
from reservation_expiry.domain.terms import Terms
from reservation_expiry.domain.tokens import TOKEN_NAME
from reservation_expiry.infrastructure.errors import UndecodableEvent, UnknownTopic

VERSION_KEY = "v"

_encode = msgspec.json.Encoder().encode
# The fields of most events are integers that the store's columns can hold.
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_decode = msgspec.json.Decoder(dict[str, Integer]).decode


class _StorageState(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """How StorageWritten stands in the log: its values as they are, not as text in text."""

    puts: dict[str, msgspec.Raw] = {}
    deletes: tuple[str, ...] = ()
    cleared: bool = False
    v: int = 1


_decode_storage = msgspec.json.Decoder(_StorageState).decode


def _encode_storage_written(fields: Mapping[str, Any]) -> bytes:
    puts = {key: msgspec.Raw(value) for key, value in fields["puts"].items()}
    return _encode(_StorageState(puts, fields["deletes"], fields["cleared"]))


def _decode_storage_written(state: bytes) -> dict[str, Any]:
    found = _decode_storage(state)
    if not state.isascii():
        state.decode()  # values are kept as they are, and would not be looked into
    puts = {key: bytes(value) for key, value in found.puts.items()}
    return {
        "puts": puts,
        "deletes": found.deletes,
        "cleared": found.cleared,
        VERSION_KEY: found.v,
    }


class _HeldState(msgspec.Struct, forbid_unknown_fields=True):
    created_at_ms: Integer
    expires_at_ms: Integer
    terms: Terms | None = None
    v: int = 1


_decode_held_state = msgspec.json.Decoder(_HeldState).decode


def _encode_held(fields: dict[str, Any]) -> bytes:
    if fields["terms"] is None:
        del fields["terms"]
    return _encode(fields)


def _decode_held(state: bytes) -> dict[str, Any]:
    """Most have no terms, and are integers only."""
    if b'"terms"' not in state:
        return _decode(state)
    found = _decode_held_state(state)
    return {
        "created_at_ms": found.created_at_ms,
        "expires_at_ms": found.expires_at_ms,
        "terms": found.terms,
        VERSION_KEY: found.v,
    }


class _RunEndedState(msgspec.Struct, forbid_unknown_fields=True):
    event_id: str
    revision: Integer
    planned_at_ms: Integer
    began_at_ms: Integer
    ended_at_ms: Integer
    attempt: Integer
    outcome: RunOutcome
    v: int = 1


class _EventCancelledState(msgspec.Struct, forbid_unknown_fields=True):
    event_id: str
    revision: Integer
    planned_at_ms: Integer | None
    reason: Literal["cancelled", "replaced"]
    v: int = 1


def _decoder(state: type[msgspec.Struct]) -> "Callable[[bytes], dict[str, Any]]":
    """For events with more than integers in their fields."""
    decode = msgspec.json.Decoder(state).decode
    return lambda data: msgspec.structs.asdict(decode(data))


# The last member of a state. These quotes begin and end a name and a value, for those within
# text have a backslash before them; and a state ends with its own brace.
_AUTHOR = re.compile(rb'[,{]"by":"(%b)"\}' % TOKEN_NAME.encode())
_AUTHOR_BYTES = 64  # more than it takes


def with_author(state: bytes, name: str) -> bytes:
    """A state that says by whom its command came. `name` is a token's."""
    comma = b"" if state == b"{}" else b","
    return b'%b%b"by":"%b"}' % (state[:-1], comma, name.encode())


def author_of(state: bytes) -> str | None:
    """Whose command it was, if it came with a name."""
    found = _author_in(state)
    return None if found is None else found[1].decode()


def _author_in(state: bytes) -> "re.Match[bytes] | None":
    if state[-2:] != b'"}':
        return None
    end = state[-_AUTHOR_BYTES:]
    return next((m for m in _AUTHOR.finditer(end) if m.end() == len(end)), None)


def _without_author(state: bytes) -> bytes:
    found = _author_in(state)
    if found is None:
        return state
    before = state[: -len(found[0])]
    return before + b"}" if before else b"{}"


Upcast = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class EventType:
    """How one event class stands in the log.

    `encode` and `decode` are between the dict of its own fields and JSON. `upcasts[i]`
    lifts a state of version i + 1 to version i + 2; a state that names no version is of
    version 1.
    """

    topic: str
    event_class: type
    upcasts: tuple[Upcast, ...] = ()
    encode: Callable[[dict[str, Any]], bytes] = _encode
    decode: Callable[[bytes], dict[str, Any]] = _decode

    @property
    def version(self) -> int:
        return 1 + len(self.upcasts)


EVENT_TYPES = (
    EventType("reservation.Held", Held, encode=_encode_held, decode=_decode_held),
    EventType("reservation.AlarmScheduled", AlarmScheduled),
    EventType("reservation.Expired", Expired),
    EventType("reservation.Extended", Extended),
    EventType("reservation.Confirmed", Confirmed),
    EventType("reservation.Released", Released),
    EventType("reservation.Cancelled", Cancelled),
    EventType("item.CapacitySet", CapacitySet),
    EventType(
        "object.StorageWritten",
        StorageWritten,
        encode=_encode_storage_written,
        decode=_decode_storage_written,
    ),
    EventType("object.AlarmSet", AlarmSet),
    EventType("object.AlarmDeleted", AlarmDeleted),
    EventType("object.AlarmHandled", AlarmHandled),
    EventType("schedule.RunEnded", RunEnded, decode=_decoder(_RunEndedState)),
    EventType("schedule.EventCancelled", EventCancelled, decode=_decoder(_EventCancelledState)),
)


class EventMapper(Mapper[str]):
    """Encodes and decodes events by the closed table it is given."""

    def __init__(self, event_types: Iterable[EventType] = EVENT_TYPES) -> None:
        super().__init__(JSONTranscoder())
        types = tuple(event_types)
        self._by_topic: Mapping[str, EventType] = {t.topic: t for t in types}
        self._by_class = {t.event_class: (t, _state_fields(t.event_class)) for t in types}

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._by_topic)

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """The row for an event. Raises UnknownTopic for a class that is not in the table."""
        try:
            event_type, names = self._by_class[type(domain_event)]
        except KeyError:
            raise UnknownTopic(f"{type(domain_event).__name__} has no topic") from None
        state = {name: getattr(domain_event, name) for name in names}
        if event_type.version > 1:
            state[VERSION_KEY] = event_type.version
        return StoredEvent(
            domain_event.originator_id,
            domain_event.originator_version,
            event_type.topic,
            event_type.encode(state),
        )

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The event in a row.

        Raises UnknownTopic if its topic is not in the table, and UndecodableEvent if its
        state is not what the topic's class needs.
        """
        return self.decode(
            str(stored_event.originator_id),
            stored_event.originator_version,
            stored_event.topic,
            stored_event.state,
        )

    def decode(self, originator_id: str, version: int, topic: str, state: bytes) -> Any:
        """`to_domain_event` for a row that was never made into a StoredEvent."""
        if type(version) is not int or type(originator_id) is not str:
            raise UndecodableEvent(f"{originator_id!r} version {version!r} is no event's")
        event_type = self._by_topic.get(topic)
        if event_type is None:
            raise UnknownTopic(f"{originator_id} version {version} has unknown topic {topic!r}")
        try:
            if state[-2:] == b'"}':
                state = _without_author(state)
            values = event_type.decode(state)
            written_at = values.pop(VERSION_KEY, 1)
            if written_at != event_type.version:
                values = _lift(values, written_at, event_type)
            return event_type.event_class(originator_id, version, **values)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise UndecodableEvent(
                f"{originator_id} version {version} ({topic}) cannot be decoded: {error}"
            ) from error


def _state_fields(event_class: type) -> tuple[str, ...]:
    return tuple(
        f.name for f in fields(event_class) if f.name not in ("originator_id", "originator_version")
    )


def _lift(values: dict[str, Any], written_at: int, event_type: EventType) -> dict[str, Any]:
    if not 1 <= written_at < event_type.version:
        raise ValueError(f"state version {written_at} is not from 1 to {event_type.version}")
    for upcast in event_type.upcasts[written_at - 1 :]:
        values = upcast(values)
    return values
