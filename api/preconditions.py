"""If-Match and If-None-Match of a request (RFC 9110, 13.1), and the tags that they name."""

from collections.abc import Callable

from flask import Response, request
from werkzeug.http import parse_etags

from reservation_expiry.api.read_routes import InvalidParameter
from reservation_expiry.domain.preconditions import Preconditions, Tags


def preconditions() -> Preconditions:
    """What the request sets. Raises InvalidParameter for a header that names nothing."""
    return preconditions_of(request.headers.get)


def preconditions_of(header: Callable[[str], str | None]) -> Preconditions:
    """The same of whatever gives a header's text."""
    return Preconditions(
        _tags("If-Match", header("If-Match")), _tags("If-None-Match", header("If-None-Match"))
    )


def tagged(response: Response, tag: str) -> Response:
    response.set_etag(tag)
    return response


def not_modified(tag: str) -> Response:
    response = tagged(Response(status=304), tag)
    del response.headers["Content-Type"]
    return response


def _tags(header: str, text: str | None) -> Tags | None:
    if text is None:
        return None
    found = parse_etags(text)
    if not found:
        raise InvalidParameter(f'{header} must be * or a list of entity tags, as in "a", "b".')
    strong = frozenset(found.as_set())
    return Tags(found.star_tag, strong, frozenset(found.as_set(include_weak=True)) - strong)
