"""Reading request bodies within their limit, and writing JSON ones."""

from typing import Any

import msgspec
from flask import Response
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from reservation_expiry.infrastructure.settings import BODY_LIMIT_BYTES

READ_BYTES = 64 * 1024

_encode = msgspec.json.Encoder().encode


def read_body(environ: dict[str, Any]) -> bytes:
    """The whole body.

    Raises RequestEntityTooLarge without reading past the limit, and ClientDisconnected if
    fewer bytes came than were declared. A declared length is refused before anything is
    read, a chunked body as soon as it grows too long. (Werkzeug's own limit lets a chunked
    body through, cut off.)
    """
    declared = environ.get("CONTENT_LENGTH", "")
    if declared.isdigit() and int(declared) > BODY_LIMIT_BYTES:
        raise RequestEntityTooLarge
    stream, parts, length = environ["wsgi.input"], [], 0
    while part := stream.read(READ_BYTES):
        parts.append(part)
        length += len(part)
        if length > BODY_LIMIT_BYTES:
            raise RequestEntityTooLarge
    if declared.isdigit() and length < int(declared):
        raise ClientDisconnected
    return b"".join(parts)


def json_response(body: object, status: int = 200) -> Response:
    """Compact JSON, `application/json` without a charset."""
    return Response(_encode(body), status, content_type="application/json")
