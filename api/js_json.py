"""Reads a request body as a JavaScript engine's `await request.json()` reads it.

The HTTP contract was recorded from a service in JavaScript, so that language decides what is JSON,
what is falsy and what is an integer (ECMA-262, JSON.parse; WHATWG Encoding, "UTF-8 decode").
This module turns bytes into values and knows no route and no field. Whoever calls it limits the
body's size, which is the only limit on nesting: Python can hold and free a value nested millions
deep, but not print or compare it.

`integer_at` is what a request needs: it makes nothing of the rest of a body but sure that it is
JSON, so that 16 MiB of it take 40 ms and no memory.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

MAX_SAFE_INTEGER = 2**53 - 1

# What msgspec refuses is read more slowly, up to 0.7 us a byte; a larger body gets no second
# reading. JavaScript has no such limit, and no client of a hold comes near it.
LENIENT_LIMIT_BYTES = 1024 * 1024


class NotJson(ValueError):
    """The body is not JSON."""


def parse(body: bytes) -> object:
    """Return the value of a JSON body: dict, list, str, int, float, True, False or None.

    One byte order mark is dropped, bytes that are not UTF-8 become U+FFFD, and the last of
    duplicate keys wins. A number may come back as an int or a float: read it with `as_integer`.
    Raises NotJson for whatever JSON.parse refuses.
    """
    try:
        return _FAST.decode(body)
    except (msgspec.DecodeError, RecursionError):
        # Either it is not JSON, or msgspec is stricter than JSON.parse.
        if len(body) > LENIENT_LIMIT_BYTES:
            raise NotJson("the body is not JSON") from None
    text = body.decode("utf-8-sig", errors="replace")
    try:
        return _read(text)
    except _UNREADABLE as error:
        raise NotJson("the body is not JSON") from error


def integer_at(key: str, body: bytes) -> int | None:
    """Return the integer at `key` of a JSON body, as `as_integer` takes it; None if there is none.

    Raises NotJson, as `parse` does, and also for a body that JavaScript takes for false.
    """
    try:
        number = bytes(_only(key).decode(body).value)
        return as_integer(parse(number)) if number[:1] in _DIGITS else None
    except msgspec.ValidationError:
        value = _outline(body)  # no object
    except (msgspec.DecodeError, RecursionError):
        value = parse(body)
        if isinstance(value, dict):
            return as_integer(value.get(key))
    if not is_truthy(value):
        raise NotJson("the body is false")
    return None


def _outline(body: bytes) -> object:
    """What truthiness needs of a value that is no object: of an array, that it is one."""
    try:
        raw = bytes(_RAW.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return parse(body)
    return [] if raw[:1] == b"[" else parse(raw)


def is_truthy(value: object) -> bool:
    """Say whether JavaScript takes the value for true: `[]` and `{}` are, 0, NaN and "" are not."""
    if isinstance(value, list | dict):
        return True
    return bool(value) and value == value


def as_integer(value: object) -> int | None:
    """Return the value if JavaScript's Number.isInteger accepts it, else None.

    JavaScript's numbers are IEEE doubles, so an int is seen as its nearest double: 2**53 + 1 is
    2**53, and what is too large for a double is Infinity, which is no integer.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return int(number) if number.is_integer() else None


def _read(text: str) -> object:
    """Read what msgspec refused. Raises one of _UNREADABLE if it is not JSON."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        return _read_deep(text)


def _read_deep(text: str) -> object:
    """Read a text of any depth as the one item of an array, so that its top is no special case."""
    items, end = _read_array(text + "]")
    if end != len(text) + 1 or len(items) != 1:
        raise ValueError("not one whole value")
    return items[0]


def _read_array(text: str) -> tuple[list[Any], int]:
    """Return the array whose items begin the text, and where it ends; linear time at any depth.

    Only the nesting is ours: Python's own decoder reads the strings and the numbers. `holder` is
    being filled, `outer` are those around it, outermost first.
    """
    array: list[Any] = []
    outer: list[Any] = [None]
    holder: Any = array
    value: Any
    at, expected, closer = 0, _ITEM, "]"
    while 0 < len(outer) <= len(text) - at:  # More open than the rest can close: not worth reading.
        char = text[at]
        if char in _SPACE:
            at = _end_of_space(text, at)
        elif char == closer and expected is not _ITEM:
            at += 1
            holder = outer.pop()
            closer = "]" if type(holder) is list else "}"
            expected = _COMMA_OR_CLOSER
        elif expected is _COMMA_OR_CLOSER:
            if char != ",":
                raise ValueError("two values without a comma")
            at += 1
            expected = _ITEM
        else:
            if closer == "}":
                key, at = _read_key(text, at)
                char = text[at]
            is_container = char in "[{"
            if is_container:
                value, at = [] if char == "[" else {}, at + 1
            else:
                value, at = _read_scalar(text, at)
            if closer == "]":
                holder.append(value)
            else:
                holder[key] = value
            expected = _COMMA_OR_CLOSER
            if is_container:
                outer.append(holder)
                holder, closer = value, "]" if char == "[" else "}"
                expected = _ITEM_OR_CLOSER
    return array, at


def _read_key(text: str, at: int) -> tuple[str, int]:
    """Return the key that begins at `at`, and where its value begins."""
    if text[at] != '"':
        raise ValueError("a key is not a string")
    key, at = _read_scalar(text, at)
    colon = _match_colon(text, at)
    if colon is None:
        raise ValueError("a key without a colon")
    return key, colon.end()


def _end_of_space(text: str, at: int) -> int:
    space = _match_space(text, at)
    return at if space is None else space.end()


def _refuse_constant(name: str) -> None:
    """Refuse NaN, Infinity and -Infinity, which Python's decoder would take."""
    raise ValueError(f"{name} is not JSON")


# Python's decoder raises StopIteration where no value begins, ValueError for all else.
_UNREADABLE = (ValueError, StopIteration)
_FAST = msgspec.json.Decoder()
_RAW = msgspec.json.Decoder(msgspec.Raw)  # reads all of it and makes nothing of it
_DIGITS = tuple(b"-0123456789"[i : i + 1] for i in range(11))


@cache
def _only(key: str) -> msgspec.json.Decoder[Any]:
    """A decoder of objects that makes something of one key: its `value`, as text."""
    fields = [("value", msgspec.Raw, msgspec.Raw())]
    return msgspec.json.Decoder(msgspec.defstruct("Only", fields, rename={"value": key}))


# Every number becomes a double, as in JavaScript; int() would refuse more than 4300 digits.
_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_refuse_constant)
# It has been there since Python 2.6, but in no stub.
_read_scalar: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]
_ITEM, _ITEM_OR_CLOSER, _COMMA_OR_CLOSER = range(3)
_SPACE = " \t\n\r"
_match_space = re.compile(rf"[{_SPACE}]*").match
_match_colon = re.compile(rf"[{_SPACE}]*:[{_SPACE}]*").match
