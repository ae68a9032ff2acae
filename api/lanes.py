"""Requests through Flask, on a few threads."""

from a2wsgi import WSGIMiddleware
from flask import Flask

from reservation_expiry.api.requests import Receive, Scope, Send
from reservation_expiry.infrastructure.errors import Overloaded


class Lane:
    """Requests through Flask, on threads of their own, so that those that take long keep only
    each other waiting."""

    def __init__(self, app: Flask, threads: int, waiting: int) -> None:
        # a2wsgi has its own, narrower names for what WSGI and ASGI call by.
        self._flask = WSGIMiddleware(app, workers=threads)  # type: ignore[arg-type]
        self._most = threads + waiting
        self._inside = 0

    def refuse_if_full(self) -> None:
        if self._inside >= self._most:
            raise Overloaded(f"{self._most} requests of the kind are under way")

    async def ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._inside += 1
        try:
            await self._flask(scope, receive, send)  # type: ignore[arg-type]  # as above
        finally:
            self._inside -= 1
