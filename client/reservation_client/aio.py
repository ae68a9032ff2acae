"""The client for programs on an event loop: `sync.py`, awaited."""

import asyncio
from collections.abc import AsyncIterator, Mapping
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


class AsyncClient:
    """A service at `url`; `token` is what it is asked with, if it asks for one.

    To be closed, or used in a `with`. Every method raises ReservationError.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=timeout, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def hold(
        self,
        name: str | None = None,
        *,
        ttl: int,
        lines: Mapping[str, int] | None = None,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> "AsyncHold":
        """Takes units of items, all or none, for `ttl` seconds; of no name, one is made."""
        token = token or calls.new_token()
        found = await self._ask(calls.put(name, token, ttl, lines or {}, owner, metadata))
        return AsyncHold(self, token, state_of(found))

    async def held(self, name: str, token: str) -> "AsyncHold":
        """One that was taken before, to go on with it."""
        return AsyncHold(self, token, await self.show(name))

    async def show(self, name: str) -> HoldState:
        return state_of(await self._ask(calls.show(name)))

    async def holds(self, **filters: Any) -> AsyncIterator[HoldState]:
        """All that the filters leave: status, owner, item, prefix, dueBefore, sort."""
        cursor = None
        while True:
            page = await self._ask(calls.holds({**filters, "cursor": cursor}))
            for found in page["holds"]:
                yield state_of(found)
            cursor = page["next"]
            if cursor is None:
                return

    async def set_item(self, name: str, capacity: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._ask(calls.set_item(name, capacity))
        return found

    async def item(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._ask(calls.item(name))
        return found

    async def events(
        self, after: int = 0, *, follow: bool = False
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The log behind a position, in order; with `follow`, what is to come, too."""
        log_id = None
        while True:
            page = await self._ask(calls.events(after, log_id, PAGE))
            for event in page["events"]:
                yield event
            after, log_id = page["next"], page["logId"]
            if not page["events"]:
                if not follow:
                    return
                await asyncio.sleep(FOLLOW_SECONDS)

    async def _ask(self, call: Call) -> Any:
        steps = asked(call)
        step: Call | Wait = next(steps)
        answer: httpx.Response | httpx.TransportError | None
        while True:
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)
            try:
                step = steps.send(answer)
            except StopIteration as done:
                return done.value

    async def _send(self, call: Call) -> httpx.Response | httpx.TransportError:
        try:
            return await self._http.request(
                call.method, call.path, json=call.body, headers=call.headers, params=call.params
            )
        except httpx.TransportError as error:
            return error


class AsyncHold:
    """A hold that this program has the token of. `state` is what was heard of it last.

    In a `with` it is released at the end of the block, unless it was confirmed.
    """

    def __init__(self, client: AsyncClient, token: str, state: HoldState) -> None:
        self._client = client
        self.token = token
        self.state = state

    @property
    def name(self) -> str:
        return self.state.name

    async def extend(self, ttl: int, *, shorten: bool = False) -> HoldState:
        """To `ttl` seconds from now."""
        return await self._do(
            "extend", {"ttlSeconds": ttl, **({"shorten": True} if shorten else {})}
        )

    async def confirm(self) -> HoldState:
        return await self._do("confirm")

    async def release(self) -> HoldState:
        return await self._do("release")

    async def cancel(self) -> HoldState:
        """Gives back what was confirmed."""
        return await self._do("cancel")

    async def _do(self, word: str, body: Mapping[str, Any] | None = None) -> HoldState:
        found = await self._client._ask(calls.command(self.name, word, self.token, body))
        self.state = state_of(found)
        return self.state

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.state.status != "held":
            return
        with suppress(AlreadyExpired, AlreadyReleased):  # it is free then, as it is to be
            await self.release()
