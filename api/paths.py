"""Request paths as a URL parser normalises them, before any route is looked for.

The Worker that this service replaces routed on `new URL(request.url).pathname`, so `\\`
counts as `/` and dot segments are resolved, `%2e` ones too (WHATWG URL, path state), and
nothing else is decoded: an encoded letter is no letter of a name. So one resource has one
spelling, and a proxy that chooses by the path and this service never disagree. Only the
names in `/schedules/...`, `/alarms/...` and `/dashboard/...`, which may be any text, and in
`/items/...` are decoded.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

DECODED_BELOW = ("/schedules/", "/items/", "/alarms/", "/dashboard/")
NO_ROUTE = "/%"  # matches no route: what is asked for has none

_ENCODED_DOT = re.compile("%2e", re.IGNORECASE)


def normalise(path: str) -> str:
    """The path with its dot segments resolved; one that leads above the root stays there."""
    segments: list[str] = []
    rest = path.replace("\\", "/").split("/")[1:]
    for segment in rest:
        if segment == "..":
            del segments[-1:]
        elif segment != ".":
            segments.append(segment)
    if rest and rest[-1] in (".", ".."):
        segments.append("")
    return "/" + "/".join(segments)


def route_of(raw_path: bytes) -> str:
    """The path to route by, for a path as it stood in the request."""
    path = resolved(raw_path)
    if "%" not in path and path.isascii():
        return path
    return _decoded(path) if path.startswith(DECODED_BELOW) else NO_ROUTE


def resolved(raw_path: bytes) -> str:
    """The path with its dot segments resolved and nothing else decoded, byte by byte."""
    path = raw_path.decode("latin-1")
    if "%" in path:
        path = "/".join(_plain_dots(segment) for segment in path.split("/"))
    if "/." in path or "\\" in path:
        path = normalise(path)
    return path


def _plain_dots(segment: str) -> str:
    """`%2E.` is `..`; in all other segments the dot stays as it was written."""
    plain = _ENCODED_DOT.sub(".", segment)
    return plain if plain in (".", "..") else segment


def _decoded(path: str) -> str:
    """With names decoded; one with a slash in it, either way, or of no text, has no route."""
    try:
        segments = [unquote_to_bytes(part).decode() for part in path.split("/")]
    except UnicodeDecodeError:
        return NO_ROUTE
    if any("/" in segment or "\\" in segment for segment in segments):
        return NO_ROUTE
    return "/".join(segments)


class NormalisedPaths:
    """WSGI middleware: the app inside sees normalised paths only.

    Other servers than ours hand over paths that are decoded already; those are normalised as
    far as that still goes.
    """

    def __init__(self, app: WsgiApp) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        path = environ["PATH_INFO"]
        if "/." in path or "\\" in path:
            path = environ["PATH_INFO"] = normalise(path)
        if path.startswith("//") or not path.startswith("/"):
            # Werkzeug would drop an empty first segment, or redirect where there is no path
            # at all (CONNECT, OPTIONS *). Kept as this, it matches no route.
            environ["PATH_INFO"] = "/%2F" + path[1:]
        return self._app(environ, start_response)
