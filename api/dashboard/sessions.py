"""Sign-ins of browsers: a cookie in the place of a token's secret.

The cookie names the token and is signed with a key that only this database and the token's
owner have: the hash of its secret. So every process knows it without a secret of its own, and
it is over as soon as the token is revoked or has ended.
"""

from itsdangerous import BadSignature, TimestampSigner

from reservation_expiry.infrastructure.token_watch import TokenWatch
from reservation_expiry.infrastructure.tokens import Token

COOKIE = "reservation-expiry-session"
LASTS_SECONDS = 12 * 3_600
_SALT = "reservation-expiry dashboard"


class Sessions:
    def __init__(self, watch: TokenWatch) -> None:
        self._watch = watch

    def sign_in(self, shown: str) -> str | None:
        """The cookie's value for a token as somebody has typed it; None if it is not valid."""
        token = self._watch.find(f"Bearer {shown.strip()}".encode("latin-1", "replace"))
        return None if token is None else _signer(token).sign(token.id).decode("ascii")

    def token_of(self, cookie: str) -> Token | None:
        """The valid token that a cookie names; None if it is not one that we have signed, too
        old, or its token has ended."""
        token = self._watch.find_by_id(cookie.partition(".")[0])
        if token is None:
            return None
        try:
            _signer(token).unsign(cookie, max_age=LASTS_SECONDS)
        except BadSignature:
            return None
        return token


def _signer(token: Token) -> TimestampSigner:
    return TimestampSigner(token.secret_sha256, salt=_SALT)
