"""If-Match and If-None-Match, as RFC 9110 has them (13.1.1, 13.1.2, 8.8.3.2)."""

import pytest

from reservation_expiry.domain.errors import PreconditionFailed
from reservation_expiry.domain.preconditions import Preconditions, Tags

ANY = Tags(any=True)


def strong(*tags: str) -> Tags:
    return Tags(False, frozenset(tags))


def weak(*tags: str) -> Tags:
    return Tags(False, frozenset(), frozenset(tags))


CASES = {
    "nothing is set": (None, None, "a", True),
    "... and nothing there": (None, None, None, True),
    "If-Match names it": (strong("a"), None, "a", True),
    "If-Match names it among others": (strong("x", "a"), None, "a", True),
    "If-Match names another": (strong("x"), None, "a", False),
    "If-Match names it weakly": (weak("a"), None, "a", False),
    "If-Match names something, and nothing is there": (strong("a"), None, None, False),
    "If-Match: *": (ANY, None, "a", True),
    "If-Match: *, and nothing is there": (ANY, None, None, False),
    "If-None-Match names it": (None, strong("a"), "a", False),
    "If-None-Match names it weakly": (None, weak("a"), "a", False),
    "If-None-Match names another": (None, strong("x"), "a", True),
    "If-None-Match names something, and nothing is there": (None, strong("a"), None, True),
    "If-None-Match: *": (None, ANY, "a", False),
    "If-None-Match: *, and nothing is there": (None, ANY, None, True),
    "both are met": (strong("a"), strong("x"), "a", True),
    "one is not": (strong("a"), ANY, "a", False),
}


@pytest.mark.parametrize("case", CASES)
def test_f40(case: str) -> None:
    if_match, if_none_match, tag, is_met = CASES[case]
    preconditions = Preconditions(if_match, if_none_match)
    if is_met:
        preconditions.refuse_unless_met(tag)
    else:
        with pytest.raises(PreconditionFailed):
            preconditions.refuse_unless_met(tag)
