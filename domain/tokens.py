"""Tokens: who may do what.

A token is `rxt_<id>_<secret>`; its scope is one of three, each of which has those before it.
"""

import re
from typing import Literal, NamedTuple, get_args

from reservation_expiry.domain.errors import InvalidToken

TokenScope = Literal["read", "write", "admin"]
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
TOKEN_NAME = "[a-z0-9][a-z0-9._-]{0,39}"  # noqa: S105
SECRET_CHARACTERS = 32  # of 32 letters and digits: 160 bits

_TOKEN = re.compile(f"rxt_([a-z2-7]{{8}})_([a-z2-7]{{{SECRET_CHARACTERS}}})")
_NAME = re.compile(TOKEN_NAME)


class Credential(NamedTuple):
    """What a client shows. Its text is a secret."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"rxt_{self.id}_{self.secret}"


def credential_of(text: str) -> Credential | None:
    """None if the text is no token of ours."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else Credential(found[1], found[2])


def allows(scope: TokenScope, needed: TokenScope) -> bool:
    return SCOPES.index(scope) >= SCOPES.index(needed)


def check_token_name(name: str) -> None:
    """Raises InvalidToken."""
    if not _NAME.fullmatch(name):
        raise InvalidToken(
            "a token's name has 1 to 40 lowercase letters, digits, dots, hyphens or underscores, "
            "a letter or digit first"
        )
