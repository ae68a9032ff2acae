"""The client for programs without an event loop."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import httpx

from reservation_client import calls
from reservation_client.errors import AlreadyExpired, AlreadyReleased
from reservation_client.exchange import Call, Wait, asked
from reservation_client.holds import HoldState, state_of

TIMEOUT_SECONDS = 10.0
FOLLOW_SECONDS = 1.0
PAGE = 1_000


class Client:
    """A service at `url`; `token` is what it is asked with, if it asks for one.

    To be closed, or used in a `with`. Every method raises ReservationError.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def hold(
        self,
        name: str | None = None,
        *,
        ttl: int,
        lines: Mapping[str, int] | None = None,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> "Hold":
        """Takes units of items, all or none, for `ttl` seconds; of no name, one is made."""
        token = token or calls.new_token()
        found = self._ask(calls.put(name, token, ttl, lines or {}, owner, metadata))
        return Hold(self, token, state_of(found))

    def held(self, name: str, token: str) -> "Hold":
        """One that was taken before, to go on with it."""
        return Hold(self, token, self.show(name))

    def show(self, name: str) -> HoldState:
        return state_of(self._ask(calls.show(name)))

    def holds(self, **filters: Any) -> Iterator[HoldState]:
        """All that the filters leave: status, owner, item, prefix, dueBefore, sort."""
        cursor = None
        while True:
            page = self._ask(calls.holds({**filters, "cursor": cursor}))
            yield from map(state_of, page["holds"])
            cursor = page["next"]
            if cursor is None:
                return

    def set_item(self, name: str, capacity: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._ask(calls.set_item(name, capacity))
        return found

    def item(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._ask(calls.item(name))
        return found

    def events(self, after: int = 0, *, follow: bool = False) -> Iterator[Mapping[str, Any]]:
        """The log behind a position, in order; with `follow`, what is to come, too."""
        log_id = None
        while True:
            page = self._ask(calls.events(after, log_id, PAGE))
            yield from page["events"]
            after, log_id = page["next"], page["logId"]
            if not page["events"]:
                if not follow:
                    return
                time.sleep(FOLLOW_SECONDS)

    def _ask(self, call: Call) -> Any:
        steps = asked(call)
        step: Call | Wait = next(steps)
        answer: httpx.Response | httpx.TransportError | None
        while True:
            if isinstance(step, Wait):
                time.sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)
            try:
                step = steps.send(answer)
            except StopIteration as done:
                return done.value

    def _send(self, call: Call) -> httpx.Response | httpx.TransportError:
        try:
            return self._http.request(
                call.method, call.path, json=call.body, headers=call.headers, params=call.params
            )
        except httpx.TransportError as error:
            return error


class Hold:
    """A hold that this program has the token of. `state` is what was heard of it last.

    In a `with` it is released at the end of the block, unless it was confirmed.
    """

    def __init__(self, client: Client, token: str, state: HoldState) -> None:
        self._client = client
        self.token = token
        self.state = state

    @property
    def name(self) -> str:
        return self.state.name

    def extend(self, ttl: int, *, shorten: bool = False) -> HoldState:
        """To `ttl` seconds from now."""
        return self._do("extend", {"ttlSeconds": ttl, "shorten": shorten})

    def confirm(self) -> HoldState:
        return self._do("confirm")

    def release(self) -> HoldState:
        return self._do("release")

    def cancel(self) -> HoldState:
        """Gives back what was confirmed."""
        return self._do("cancel")

    def _do(self, word: str, body: Mapping[str, Any] | None = None) -> HoldState:
        found = self._client._ask(calls.command(self.name, word, self.token, body))
        self.state = state_of(found)
        return self.state

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.state.status != "held":
            return
        with suppress(AlreadyExpired, AlreadyReleased):  # it is free then, as it is to be
            self.release()
