"""What other code holds of an object: a stub, which runs the object when it is called."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from reservation_expiry.domain.ids import ObjectId, object_id
from reservation_expiry.infrastructure.objects import values
from reservation_expiry.infrastructure.objects.messages import Request, Response
from reservation_expiry.infrastructure.objects.running_code import call_task


class Caller(Protocol):
    """Runs a method of an object (`ObjectHost.call`)."""

    async def call(self, identity: ObjectId, method: str, /, *args: Any, **kwargs: Any) -> Any: ...


class Namespace:
    """A binding: the objects of one class, by name."""

    def __init__(self, host: Caller, class_name: str) -> None:
        self._host = host
        self._class_name = class_name

    def getByName(self, name: str) -> "Stub":
        """The object of that name, whether it has been used before or not."""
        return Stub(self._host, object_id(self._class_name, name))

    def idFromName(self, name: str) -> ObjectId:
        return object_id(self._class_name, name)

    def get(self, identity: ObjectId) -> "Stub":
        return self.getByName(identity.name)

    get_by_name = getByName
    id_from_name = idFromName


class Stub:
    """`await stub.method(...)` runs that method of the object; `fetch(request)` too.

    Arguments and results are copied as storage would: JSON-like values, requests and
    responses; anything else is a TypeError.
    """

    def __init__(self, host: Caller, identity: ObjectId) -> None:
        self._host = host
        self.id = identity
        self.name = identity.name

    def fetch(self, request: Any, **options: Any) -> "asyncio.Task[Any]":
        """`request` is a Request, or a URL with Request's options."""
        if not isinstance(request, Request):
            request = Request(request, **options)
        return self._call("fetch", (request,), {})

    def __getattr__(self, name: str) -> Callable[..., "asyncio.Task[Any]"]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def _call(self, method: str, args: Any, kwargs: Any) -> "asyncio.Task[Any]":
        args = [_copied(value, f"argument {i + 1} of {method}()") for i, value in enumerate(args)]
        kwargs = {k: _copied(value, f"{k} of {method}()") for k, value in kwargs.items()}
        return call_task(self._run(method, args, kwargs))

    async def _run(self, method: str, args: Any, kwargs: Any) -> Any:
        result = await self._host.call(self.id, method, *args, **kwargs)
        return _copied(result, f"the result of {method}()")


def _copied(value: Any, what: str) -> Any:
    return value.copy() if isinstance(value, Request | Response) else values.copied(value, what)
