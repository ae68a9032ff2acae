"""What JSON.parse, truthiness and Number.isInteger make of a body, held to by api.js_json.

A body can take three ways through the module (msgspec, Python's decoder, the reader for deep
nesting); wherever one of them answers, the others must give the same answer.
"""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reservation_expiry.api import js_json

BOM = b"\xef\xbb\xbf"
REFUSED = "refused"


def answer(read, source):
    """What `read` makes of a source, with every number as a double; REFUSED if it is not JSON."""
    try:
        return as_doubles(read(source))
    except js_json._UNREADABLE:
        return REFUSED


def as_doubles(value):
    """The value with each number as the double it stands for, -0 taken for 0."""
    if isinstance(value, list):
        return [as_doubles(item) for item in value]
    if isinstance(value, dict):
        return {key: as_doubles(item) for key, item in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return ("number", str(float(value) or 0.0))
    except OverflowError:
        return ("number", "inf" if value > 0 else "-inf")


def agreed(body):
    """The one answer to a body that all ways through the module give."""
    text = decoded(body)
    first = answer(js_json.parse, body)
    assert answer(js_json._read, text) == first
    assert answer(js_json._read_deep, text) == first
    return first


def decoded(body):
    return body.decode("utf-8-sig", errors="replace")


def nest(depth, opener, closer, inside=b""):
    return opener * depth + inside + closer * depth


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"null", None),
        (b"true", True),
        (b"false", False),
        (b'""', ""),
        (b"[]", []),
        (b"{}", {}),
        (b'[[],{},"a",null]', [[], {}, "a", None]),
        (b' \t\r\n{ "a" : [ "b" , { } ] , "c" : "d" }\n ', {"a": ["b", {}], "c": "d"}),
        (b'"\x7f"', "\x7f"),
        (b'"\xe2\x80\xa8\xef\xbb\xbf"', "\u2028\ufeff"),
        (rb'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
        (rb'"\u0000\u00e9\u00E9\ud83d\ude00"', "\0éé😀"),
        (rb'"\ud800"', "\ud800"),
        (rb'"\udc00x"', "\udc00x"),
        (rb'"\ud83d\ud83d\ude00"', "\ud83d😀"),
        (rb'{"\ud800":""}', {"\ud800": ""}),
        (rb'{"\u0074tlSeconds":"x"}', {"ttlSeconds": "x"}),
        (b'{"":"x"}', {"": "x"}),
        (b'{"__proto__":{"ttlSeconds":""}}', {"__proto__": {"ttlSeconds": ""}}),
        (b'{"a":"first","b":"","a":"last"}', {"a": "last", "b": ""}),
        (rb'{"a":"first","\u0061":"\ud800"}', {"a": "\ud800"}),
    ],
)
def test_json_is_read_as_json_parse_reads_it(body, value):
    assert agreed(body) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"{oops",
        b"ttlSeconds=30",
        b"{'a':1}",
        b"{a:1}",
        b"{1:1}",
        b"[1,]",
        b"[,1]",
        b"[,]",
        b"[1 2]",
        b"[1:2]",
        b"[1}",
        b'{"a":1]',
        b'{"a":1,}',
        b"{,}",
        b'{"a"}',
        b'{"a":}',
        b'{"a" 1}',
        b'{"a":1 "b":2}',
        b'{"a":1}//x',
        b"/**/1",
        b"1 2",
        b"1,2",
        b"1,",
        b",1",
        b"1]",
        b"1],[2",
        b"]",
        b"[",
        b"[1",
        b"[1,",
        b"{",
        b'{"a',
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1}{"a":1}',
        b'{"a":1}\n{"a":1}',
        b"nul",
        b"nulll",
        b"truefalse",
        b"True",
        b"undefined",
    ],
)
def test_what_is_not_json_is_refused(body):
    assert agreed(body) == REFUSED


@pytest.mark.parametrize(
    "body",
    [b'"', b'"\\', b'"\\"', b'"\\u12"', rb'"\x41"', rb'"\u00g0"', rb'"\u+123"', rb'"\U0041"']
    + [rb'"\ud800\u"', rb'"\0"']
    + [b'"a' + bytes([control]) + b'"' for control in range(0x20)],
)
def test_bad_escapes_open_strings_and_raw_control_characters_are_refused(body):
    assert agreed(body) == REFUSED


@pytest.mark.parametrize(
    "space", ["\x0b", "\x0c", "\0", "\x1c", "\x85", "\u00a0", "\u2028", "\u3000", "/**/"]
)
@pytest.mark.parametrize("place", ["%s{}", "{}%s", "[%s]", '{"a"%s:1}', '{"a":%s1}', "[1%s]"])
def test_only_space_tab_and_line_ends_may_stand_between_tokens(space, place):
    assert agreed((place % space).encode()) == REFUSED


@pytest.mark.parametrize(
    ("body", "integer"),
    [
        (b"5", 5),
        (b"5.0", 5),
        (b"1e3", 1000),
        (b"1E+3", 1000),
        (b"50e-1", 5),
        (b"0", 0),
        (b"-0", 0),
        (b"0e5", 0),
        (b"-0.0", 0),
        (b"-30", -30),
        (b"5.0000000000000001", 5),
        (b"4.9999999999999999", 5),
        (b"3600.000000000001", None),
        (b"55e-1", None),
        (b"5e-324", None),
        (b"1e-400", 0),
        (b"1e999", None),
        (b"-1e999", None),
        (b"1e99999999999999999999", None),
        (b"9007199254740991", js_json.MAX_SAFE_INTEGER),
        (b"9007199254740991.2", js_json.MAX_SAFE_INTEGER),
        (b"9007199254740991.6", js_json.MAX_SAFE_INTEGER + 1),
        (b"9007199254740992", js_json.MAX_SAFE_INTEGER + 1),
        (b"9007199254740993", js_json.MAX_SAFE_INTEGER + 1),
        (b"18446744073709551646", 2**64),
        (b"1" + b"0" * 308, int(1e308)),
        (b"1" + b"0" * 309, None),
        (b"1" * 4300, None),
        (b"1" * 5000, None),
        (b"-" + b"1" * 5000, None),
        (b"30." + b"0" * 5000, 30),
        (b"0." + b"0" * 4000 + b"1e4001", 1),
    ],
)
def test_a_number_is_the_double_that_javascript_makes_of_it(body, integer):
    agreed(body)
    for value in (js_json.parse(body), js_json._read_deep(decoded(body))):
        found = js_json.as_integer(value)
        assert (found, type(found)) == (integer, type(integer))


@pytest.mark.parametrize(
    "body",
    [
        b"030",
        b"-01",
        b"+30",
        b"30.",
        b".5",
        b"-",
        b"--1",
        b"1e",
        b"1e+",
        b"1.e1",
        b"1_000",
        b"30n",
        b"0x1e",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        "３０".encode(),
        "٣".encode(),
    ],
)
def test_numbers_that_json_does_not_know_are_refused(body):
    for place in (b"%s", b"[%s]", b'{"ttlSeconds":%s}'):
        assert agreed(place % body) == REFUSED


@pytest.mark.parametrize("value", [None, True, False, "30", "", [30], {"valueOf": 30}, math.inf])
def test_only_a_number_can_be_an_integer(value):
    assert js_json.as_integer(value) is None


def test_a_number_that_is_not_a_number_is_no_integer():
    assert js_json.as_integer(math.nan) is None


@pytest.mark.parametrize("body", [b"null", b"false", b"0", b"-0", b"0.0", b"0e5", b"1e-400", b'""'])
def test_a_falsy_body_is_falsy(body):
    assert js_json.is_truthy(js_json.parse(body)) is False


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"true", b"30", b"-1", b"5e-324", b"1e999", b'"x"', b'"0"', b'" "']
)
def test_every_other_body_is_truthy_even_if_it_is_empty(body):
    assert js_json.is_truthy(js_json.parse(body)) is True


def test_nan_is_falsy():
    assert js_json.is_truthy(math.nan) is False


def test_one_byte_order_mark_is_dropped_and_a_second_is_refused():
    assert agreed(BOM + b"[]") == []
    assert agreed(BOM) == REFUSED
    assert agreed(BOM + BOM + b"[]") == REFUSED
    assert agreed(b"[]" + BOM) == REFUSED
    assert agreed("[]".encode("utf-16")) == REFUSED


@pytest.mark.parametrize(
    ("bad", "replaced"),
    [
        (b"\xe9", 1),
        (b"\xc0\xaf", 2),
        (b"\xed\xa0\x80", 3),
        (b"\xe2\x82", 1),
        (b"\xf0\x9f\x98", 1),
        (b"\xf4\x90\x80\x80", 4),
    ],
)
def test_bytes_that_are_not_utf8_become_replacement_characters_in_strings_only(bad, replaced):
    text = "\ufffd" * replaced
    assert agreed(b'{"%s":"caf%s"}' % (bad, bad)) == {text: "caf" + text}
    assert agreed(bad + b"[]") == REFUSED
    assert agreed(b"[]" + bad) == REFUSED


@pytest.mark.parametrize(
    ("opener", "closer"),
    [(b"[", b"]"), (b'{"a":', b"}"), (b'[1,{"a" : ', b' , "b":"\\ud800" } ] ')],
)
def test_nesting_has_no_limit_of_its_own(opener, closer):
    value = js_json.parse(nest(20_000, opener, closer, inside=b"30"))
    depth = 0
    while isinstance(value, list | dict):
        value = value[-1] if isinstance(value, list) else value["a"]
        depth += 1
    assert depth in (20_000, 40_000)
    assert js_json.as_integer(value) == 30


@pytest.mark.parametrize(("opener", "closer"), [(b"[", b"]"), (b'{"a":', b"}"), (b"[1,", b"]")])
def test_deep_nesting_must_be_closed_as_it_was_opened(opener, closer):
    for body in (
        opener * 20_000,
        nest(20_000, opener, closer, inside=b"1") + closer,
        nest(20_000, opener, closer, inside=b"1")[:-1],
        nest(20_000, opener, closer, inside=b"1")[:-1] + b"x",
        nest(20_000, opener, closer, inside=b"}"),
        nest(20_000, opener, closer, inside=b"1],"),
        nest(20_000, opener, closer, inside=b"NaN"),
    ):
        with pytest.raises(js_json.NotJson):
            js_json.parse(body)


def test_the_last_duplicate_wins_beside_deep_nesting():
    deep = nest(5000, b"[", b"]")
    body = b'{"ttlSeconds":4,"x":%s,"ttlSeconds":30}' % deep
    assert js_json.as_integer(js_json.parse(body)["ttlSeconds"]) == 30


strings = st.text(st.characters(codec=None) | st.sampled_from('\ud800\udfff"\\\n\0'))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner) | st.dictionaries(strings, inner),
)
bytes_of_interest = st.sampled_from(b'[]{}:,"\\ \n\tue0123456789+-.\x00\x1f\x7f\x80\xc3\xef\xff')


@given(values, st.sampled_from([None, 1, "\t", " \r\n"]))
@settings(deadline=None)
def test_what_json_can_write_is_read_back_by_every_way(value, indent):
    assert agreed(json.dumps(value, indent=indent).encode()) == as_doubles(value)


@given(values, st.data())
@settings(max_examples=300, deadline=None)
def test_every_way_agrees_on_damaged_json(value, data):
    body = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        cut = data.draw(st.integers(0, 2))
        body[at : at + cut] = bytes(data.draw(st.lists(bytes_of_interest, max_size=3)))
    agreed(bytes(body))


@given(st.binary() | st.lists(bytes_of_interest).map(bytes))
@example(b'"\xed\xa0\x80\xed\xb0\x80"')
@settings(max_examples=300, deadline=None)
def test_every_way_agrees_on_any_bytes(body):
    agreed(body)


@given(numbers)
def test_an_integer_is_what_the_nearest_double_is(number):
    try:
        double = float(number)
    except OverflowError:
        double = math.inf
    assert js_json.as_integer(number) == (int(double) if double.is_integer() else None)
