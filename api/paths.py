"""Request paths as a URL parser normalises them, before any route is looked for.

The Worker that this service replaces routed on `new URL(request.url).pathname`, so `\\`
counts as `/` and dot segments are resolved (WHATWG URL, path state). The server hands
us paths that are percent-decoded already, so `%2e%2e` arrives as `..`.
"""

from collections.abc import Callable, Iterable
from typing import Any

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


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


class NormalisedPaths:
    """WSGI middleware: the app inside sees normalised paths only."""

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
