"""What an object can keep: the quick look and the slow one, which says where, agree."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_expiry.infrastructure.objects import values

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.integers(-(2**65), 2**65),
    st.sampled_from([-(2**63), -(2**63) - 1, 2**64 - 1, 2**64]),
    st.floats(),
    st.sampled_from([b"x", {1}, type("Text", (str,), {})("x")]),
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=2), st.integers(0, 2)), inner, max_size=3),
    ),
)
DEPTH = 3


@given(ANYTHING)
def test_the_quick_look_lets_through_what_the_slow_one_does(value: Any) -> None:
    try:
        values._check(value, "it", DEPTH, DEPTH)
        allowed = True
    except TypeError:
        allowed = False
    assert values._is_json(value, DEPTH) is allowed


@pytest.mark.parametrize(("depth", "allowed"), [(99, True), (100, True), (101, False)])
def test_a_value_is_nested_at_most_a_hundred_deep(depth: int, allowed: bool) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    if allowed:
        assert values.decode(values.encode(value)) == value
    else:
        with pytest.raises(TypeError, match="nested more than 100 deep"):
            values.encode(value)
