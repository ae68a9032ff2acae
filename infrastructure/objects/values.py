"""What an object can keep: JSON, and nothing that would come back as something else.

Values are kept as JSON text, so what is read is always a copy, and nothing that a class
does to a value changes what is stored.
"""

import math
from itertools import chain
from typing import Any, TypeAlias

import msgspec

MAX_VALUE_BYTES = 2 * 1024 * 1024
MAX_MESSAGE_BYTES = 32 * 1024 * 1024  # of an argument or a result of a call
MAX_KEY_BYTES = 2_048
MAX_DEPTH = 100

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

ALLOWED = "None, a bool, a number, text, or a list or dict of these"


def encode(
    value: Any, what: str = "the value", limit: int = MAX_VALUE_BYTES, depth: int = MAX_DEPTH
) -> bytes:
    """The JSON text of a value. Raises TypeError, saying where and what is allowed."""
    if not _is_json(value, depth):
        _check(value, what, depth, depth)  # says where and why
    try:
        text = _encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError) as error:
        raise TypeError(f"{what} cannot be kept: {error}") from error
    if len(text) > limit:
        raise TypeError(f"{what} has {len(text)} bytes as JSON, and at most {limit} are allowed")
    return text


def copied(value: Any, what: str) -> Any:
    """The value as it would come back from storage."""
    return decode(encode(value, what, MAX_MESSAGE_BYTES))


def check_key(key: Any) -> str:
    """The key. Raises TypeError unless it is text of 1 to MAX_KEY_BYTES bytes."""
    if not isinstance(key, str):
        raise TypeError(f"a key is text, not {_kind(key)}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise TypeError(f"the key {key!r} is not text that can be kept") from error
    if not 0 < size <= MAX_KEY_BYTES:
        raise TypeError(f"a key has 1 to {MAX_KEY_BYTES} bytes, not {size}")
    return key


_LEAVES = frozenset({type(None), bool, str})


def _is_json(value: Any, depth: int) -> bool:
    """Whether `_check` has nothing against it. Level by level, which is a few times faster:
    a value of 1 MiB that is all brackets must not hold up the others on its loop."""
    level = [value]
    for left in range(depth, -1, -1):
        deeper: list[Any] = []
        for kind in set(map(type, level)) - _LEAVES:
            alike: list[Any] = [item for item in level if type(item) is kind]
            if kind is dict and left:
                if {type(key) for item in alike for key in item} - {str}:
                    return False
                deeper.extend(inner for item in alike for inner in item.values())
            elif (kind is list or kind is tuple) and left:
                deeper.extend(chain.from_iterable(alike))
            elif not _are_numbers(kind, alike):
                return False
        level = deeper
    return True


def _are_numbers(kind: type, alike: list[Any]) -> bool:
    if kind is int:
        return bool(min(alike) >= -(2**63) and max(alike) < 2**64)
    return kind is float and all(math.isfinite(number) for number in alike)


_Place: TypeAlias = "str | tuple[_Place, Any]"  # a name, or a key in a place


def _check(value: Any, place: _Place, left: int, depth: int) -> None:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return
    if kind is int or kind is float:
        _check_number(value, place)
    elif kind not in (list, tuple, dict):
        raise TypeError(f"{_at(place)} is {_kind(value)}, which cannot be kept: use {ALLOWED}")
    elif left == 0:
        raise TypeError(f"{_at(place)} is nested more than {depth} deep")
    else:
        for key, item in value.items() if kind is dict else enumerate(value):
            if kind is dict and type(key) is not str:
                raise TypeError(f"{_at(place)} has the key {key!r}, and keys are text")
            _check(item, (place, key), left - 1, depth)


def _check_number(value: float, place: _Place) -> None:
    if type(value) is int:
        if not -(2**63) <= value < 2**64:
            raise TypeError(f"{_at(place)} is an integer of more than 64 bits")
    elif not math.isfinite(value):
        raise TypeError(f"{_at(place)} is {value}, which JSON has no number for")


def _at(place: _Place) -> str:
    """The place in words. Made only for a sentence: most values are fine."""
    if isinstance(place, str):
        return place
    outer, key = place
    return f"{_at(outer)}[{key!r}]"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
