"""A prefix as a range of keys, up to the end of Unicode."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reservation_expiry.domain.prefixes import prefix_range

# Few characters, so that keys and prefixes meet: the first, the last, those about the surrogates.
EDGES = "\0ab\ud7ff\ue000\ufffe\uffff\U00010000\U0010fffe\U0010ffff"
texts = st.text(st.sampled_from(EDGES), max_size=5) | st.text(max_size=5)


@given(key=texts, prefix=texts)
@example(key="a\U0010ffff", prefix="a")
@example(key="a\U0010ffffz", prefix="a")
@example(key="\U0010ffff\U0010ffff", prefix="\U0010ffff")
def test_f47_a_key_begins_with_a_prefix_if_and_only_if_it_is_in_its_range(
    key: str, prefix: str
) -> None:
    lower, upper = prefix_range(prefix)
    assert key.startswith(prefix) == (lower <= key and (upper is None or key < upper))


@given(prefix=texts)
def test_f47_the_bounds_are_text_that_a_database_takes(prefix: str) -> None:
    for bound in prefix_range(prefix):
        assert bound is None or bound.encode().decode() == bound


@pytest.mark.parametrize(
    ("prefix", "upper"),
    [
        ("a", "b"),
        ("", None),
        ("\U0010ffff\U0010ffff", None),
        ("a\U0010ffff", "b"),
        ("a\ud7ff", "a\ue000"),
    ],
)
def test_f47_the_upper_bound_is_the_first_text_behind_all_that_begin_so(
    prefix: str, upper: str | None
) -> None:
    assert prefix_range(prefix) == (prefix, upper)
