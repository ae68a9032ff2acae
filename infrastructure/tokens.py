"""The tokens of a database: made and revoked by commands, and read by what serves.

A secret is shown to whoever made the token and kept nowhere; the table has its SHA-256,
which is enough for secrets of 160 random bits.
"""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from reservation_expiry.domain.errors import InvalidToken
from reservation_expiry.domain.tokens import (
    SCOPES,
    SECRET_CHARACTERS,
    Credential,
    TokenScope,
    check_token_name,
    credential_of,
)
from reservation_expiry.infrastructure.clock import Clock
from reservation_expiry.infrastructure.stores.row_types import TokenRow
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_CHARACTERS = 8
MOST_SHOWN = 1_000  # headers that are remembered until the tokens are read again


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the database knows it. Instants are Unix milliseconds."""

    id: str
    name: str
    scope: TokenScope
    secret_sha256: bytes
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None

    def is_valid(self, now_ms: int) -> bool:
        has_ended = self.expires_at_ms is not None and self.expires_at_ms <= now_ms
        return self.revoked_at_ms is None and not has_ended

    def state(self, now_ms: int) -> str:
        if self.revoked_at_ms is not None:
            return "revoked"
        return "valid" if self.is_valid(now_ms) else "expired"

    def row(self) -> TokenRow:
        return (
            self.id,
            self.name,
            self.scope,
            self.secret_sha256,
            self.created_at_ms,
            self.expires_at_ms,
            self.revoked_at_ms,
        )


def token_of(row: TokenRow) -> Token:
    id, name, scope, secret_sha256, created_at_ms, expires_at_ms, revoked_at_ms = row
    known = next((one for one in SCOPES if one == scope), None)
    if known is None:
        raise InvalidToken(f"the token {name} has a scope that is none: {scope!r}")
    return Token(id, name, known, secret_sha256, created_at_ms, expires_at_ms, revoked_at_ms)


def new_credential() -> Credential:
    return Credential(_random(_ID_CHARACTERS), _random(SECRET_CHARACTERS))


class CreateToken(Work):
    """Makes a token, for ever or for so many milliseconds. Returns it.

    Raises InvalidToken if its name is none or another valid token has it.
    """

    def __init__(
        self, credential: Credential, name: str, scope: TokenScope, lives_ms: int | None
    ) -> None:
        check_token_name(name)
        self._credential = credential
        self._name = name
        self._scope = scope
        self._lives_ms = lives_ms

    def run(self, unit: UnitOfWork) -> Token:
        unit.session.head()  # there may be no log any more that it would be for
        now_ms = unit.now_ms
        for other in map(token_of, unit.session.tokens()):
            if other.name == self._name and other.is_valid(now_ms):
                raise InvalidToken(
                    f"there is a valid token {self._name} already: revoke it, or use another name"
                )
        expires_at_ms = None if self._lives_ms is None else now_ms + self._lives_ms
        id, secret = self._credential
        token = Token(id, self._name, self._scope, _hash(secret), now_ms, expires_at_ms, None)
        unit.after_flush(lambda: unit.session.put_token(token.row()))
        return token


class RevokeToken(Work):
    """Ends the valid token of a name or an id. Returns it, or None if there is none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, unit: UnitOfWork) -> Token | None:
        for token in map(token_of, unit.session.tokens()):
            if self._name in (token.name, token.id) and token.is_valid(unit.now_ms):
                row = replace(token, revoked_at_ms=unit.now_ms).row()
                unit.after_flush(partial(unit.session.put_token, row))
                return token
        return None


class TokenBook:
    """The tokens of one moment that are not revoked, to look them up by what clients show."""

    def __init__(self, rows: Iterable[TokenRow] = ()) -> None:
        # One that is damaged is as good as none, and no reason not to read the others.
        tokens = [token_of(row) for row in rows if row[2] in SCOPES]
        self._by_id = {token.id: token for token in tokens if token.revoked_at_ms is None}
        self._shown: dict[bytes, Token] = {}  # good ones, as they were shown

    def find(self, authorization: bytes, clock: Clock) -> Token | None:
        """The valid token of an Authorization header (`Bearer`, RFC 6750); None if it has
        none."""
        token = self._shown.get(authorization) or self._look_up(authorization)
        if token is None or token.expires_at_ms is None:
            return token
        return token if token.is_valid(clock.now_ms()) else None

    def find_by_id(self, id: str, clock: Clock) -> Token | None:
        """The token of an id, if it is valid."""
        token = self._by_id.get(id)
        return token if token is not None and token.is_valid(clock.now_ms()) else None

    def _look_up(self, authorization: bytes) -> Token | None:
        """Takes as long for a secret that is nearly right as for any other."""
        scheme, _, rest = authorization.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        shown = rest.strip(" ")
        credential = credential_of(shown)
        token = None if credential is None else self._by_id.get(credential.id)
        if credential is None or token is None:
            return None
        if not hmac.compare_digest(_hash(credential.secret), token.secret_sha256):
            return None
        if len(self._shown) < MOST_SHOWN:
            self._shown[authorization] = token
        return token


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def _random(characters: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(characters))
