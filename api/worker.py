"""Serving a file of durable objects: `from workers import DurableObject, ...`.

The module `workers` exists in the processes that serve such a file, and nowhere else.
Each process has one event loop, the server's own, on which the objects run too. The parent
reads the file and runs none of it; so a process that has to be replaced runs what the others
run, whatever is being written to the file meanwhile.
"""

import asyncio
import importlib.util
import inspect
import logging
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

import msgspec

from reservation_expiry.api.access import Access
from reservation_expiry.api.front import Door
from reservation_expiry.api.gate import access_of, needs_of_worker
from reservation_expiry.api.problems import problem_of
from reservation_expiry.api.request_ids import begin_request, id_headers
from reservation_expiry.api.requests import Receive, Scope, Send, send_answer
from reservation_expiry.api.server import Open
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.errors import StoreStopped
from reservation_expiry.infrastructure.objects.durable_object import DurableObject
from reservation_expiry.infrastructure.objects.entrypoint import Bindings, WorkerEntrypoint
from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule
from reservation_expiry.infrastructure.objects.host import ObjectHost
from reservation_expiry.infrastructure.objects.messages import Request, Response
from reservation_expiry.infrastructure.objects.running_code import called, run_as
from reservation_expiry.infrastructure.settings import Settings

FRONT_DOOR = "Default"

logger = logging.getLogger(__name__)
_background: set[asyncio.Future[Any]] = set()


class WorkerRefused(ReservationExpiryError):
    """The file, or its configuration, cannot be served."""

    code = "worker-refused"


@dataclass(frozen=True)
class LoadedWorker:
    """What a file has: its front door, its object classes, and what `env` is to hold."""

    front_door: type[WorkerEntrypoint]
    classes: dict[str, type]
    bindings: dict[str, str]  # class names by binding
    variables: dict[str, Any]


class _Durable(msgspec.Struct):
    name: str
    class_name: str


class _DurableObjects(msgspec.Struct):
    bindings: list[_Durable] = []


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The TOML file: `[[durable_objects.bindings]]` and `[vars]`."""

    durable_objects: _DurableObjects | None = None
    vars: dict[str, Any] = {}


@dataclass(frozen=True)
class Source:
    """A file as it was read, with its configuration. Nothing of it has run."""

    file: Path
    code: CodeType
    config_file: Path | None
    config: Config

    def run(self) -> LoadedWorker:
        """Runs it and looks what it has. Raises WorkerRefused."""
        sys.modules["workers"] = _workers_module()
        return _look_at(self, vars(_run(self.file, self.code)))


def read_worker(file: Path, config_file: Path | None = None) -> Source:
    """Raises WorkerRefused if either cannot be read, or is not written as it must be."""
    config = _read_config(config_file)
    try:
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        raise WorkerRefused(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    return Source(file, code, config_file, config)


def _look_at(source: Source, found: dict[str, Any]) -> LoadedWorker:
    file, config, config_file = source.file, source.config, source.config_file
    own = {
        name: value
        for name, value in found.items()
        if isinstance(value, type) and value.__module__ == found["__name__"]
    }
    classes = {name: c for name, c in own.items() if issubclass(c, DurableObject)}
    front_door = own.get(FRONT_DOOR)
    if front_door is None or not issubclass(front_door, WorkerEntrypoint):
        raise WorkerRefused(
            f"{file} has no class {FRONT_DOOR}(WorkerEntrypoint) to answer requests"
        )
    if config.durable_objects is None:
        bindings = {binding_name(name): name for name in classes}
    else:
        bindings = {b.name: b.class_name for b in config.durable_objects.bindings}
    for binding, name in bindings.items():
        if name not in classes:
            raise WorkerRefused(
                f"{config_file} binds {binding} to {name}, which is no DurableObject of {file}"
            )
    return LoadedWorker(front_door, classes, bindings, dict(config.vars))


def binding_name(class_name: str) -> str:
    """AlarmExample -> ALARM_EXAMPLE"""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_name)
    return words.upper()


def _read_config(file: Path | None) -> Config:
    if file is None:
        return Config()
    try:
        return msgspec.convert(tomllib.loads(file.read_text()), Config)
    except (OSError, ValueError) as error:  # TOML's and msgspec's errors are ValueErrors
        raise WorkerRefused(f"{file} cannot be used: {error}") from error


def _workers_module() -> ModuleType:
    module = ModuleType("workers", "Durable objects, as their classes see them.")
    for name in (DurableObject, EventSchedule, WorkerEntrypoint, Request, Response):
        setattr(module, name.__name__, name)
    return module


def _run(file: Path, code: CodeType) -> ModuleType:
    spec = importlib.util.spec_from_file_location("worker", file)
    if spec is None:
        raise WorkerRefused(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["worker"] = module
    try:
        exec(code, vars(module))  # noqa: S102  it is what the user asked for
    except BaseException as error:  # sys.exit() too: people's code must not end ours
        raise WorkerRefused(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    return module


HEALTH = {b"/healthz": "/healthz", b"/readyz": "/readyz"}


class WorkerDoor(Door):
    """Every request to the file's front door. `application` must be started.

    Objects of `classes` run beside those of the file.
    """

    def __init__(
        self,
        application: ReservationApplication,
        access: Access,
        worker: LoadedWorker,
        classes: Mapping[str, type] = MappingProxyType({}),
    ) -> None:
        super().__init__(application, access)
        self._front_door = worker.front_door
        self._host = ObjectHost(application, {**worker.classes, **classes})
        self._stopping: asyncio.Future[None] | None = None
        spaces = {b: self._host.namespace(name) for b, name in worker.bindings.items()}
        self._env = self._host.env = Bindings(worker.variables | spaces)

    @property
    def call_object(self) -> Callable[..., Awaitable[Any]]:
        return self._host.call

    async def start(self) -> None:
        await self._host.start()

    def drain(self) -> None:
        """Begins to stop, before the server has answered what it has accepted."""
        self._stop_objects()

    async def stop(self) -> None:
        await (self._stop_objects() if self._stopping is None else self._stopping)

    def _stop_objects(self) -> asyncio.Future[None]:
        super().drain()
        self._host.accepting = False
        self._stopping = asyncio.ensure_future(self._host.stop())
        return self._stopping

    def route(self, raw_path: bytes) -> str:
        return "(objects)"  # which paths there are, the file says

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin_request(scope)
        path = HEALTH.get(scope["raw_path"])
        if path and scope["method"] == "GET" and not self._front_door.answers_health:
            return await self.refuse(send, await self.health(path))
        with await self.bodies.read(scope, receive) as body:
            await _send(send, await self._fetch(scope, body), id_headers(scope))

    async def _fetch(self, scope: Scope, body: bytes) -> Response:
        if not self._host.accepting:
            raise StoreStopped("the service is shutting down")
        try:
            run_as(self)
            answer = await called(self._run_front, (_request(scope, body),), {})
        except ReservationExpiryError as error:
            return _problem(error)
        except Exception:  # people's code: whatever it raises is its own, and is 500
            logger.exception("a request failed")
            return Response("Internal Server Error\n", 500)
        if answer is None:
            return Response(None, 204)
        if not isinstance(answer, Response):
            logger.error("fetch() returned %r, which is no Response", type(answer))
            return Response("Internal Server Error\n", 500)
        try:
            _encoded_headers(answer)
        except UnicodeEncodeError:
            logger.exception("a header of the response cannot be sent")
            return Response("Internal Server Error\n", 500)
        return answer

    def began(self, task: asyncio.Future[Any]) -> None:
        """A task that the front door's code made. Nobody else may hold it."""
        _background.add(task)
        task.add_done_callback(_background.discard)

    async def _run_front(self, request: Request) -> Any:
        front = self._front_door(FrontContext(), self._env)
        answer = front.fetch(request)  # type: ignore[attr-defined]  # if it has one
        return await answer if inspect.isawaitable(answer) else answer


def open_worker(source: Source, settings: Settings) -> Open:
    """The objects of a file, and its front door."""

    @asynccontextmanager
    async def worker(application: ReservationApplication) -> AsyncIterator[Door]:
        loaded = source.run()
        needs = partial(needs_of_worker, answers_health=loaded.front_door.answers_health)
        with access_of(settings, application, needs, root=None) as access:
            door = WorkerDoor(application, access, loaded)
            await door.start()
            try:
                yield door
            finally:
                await door.stop()
                door.close()

    return worker


class FrontContext:
    """`ctx` of the front door: work that goes on when the response has left."""

    def waitUntil(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        _background.add(task)
        task.add_done_callback(_background.discard)

    wait_until = waitUntil


def _request(scope: Scope, body: bytes) -> Request:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name != b"authorization" or "token" not in scope  # a secret of ours, and no business
    ]
    host = next((value for name, value in headers if name == "host"), "localhost")
    target = scope["raw_path"]  # as it was asked for: /a%2Fb is not /a/b
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    url = f"{scope.get('scheme', 'http')}://{host}{target.decode('latin-1')}"
    return Request(url, method=scope["method"], headers=headers, body=body or None)


async def _send(send: Send, answer: Response, more: Sequence[tuple[bytes, bytes]]) -> None:
    body = answer.body or b""
    headers = [*_encoded_headers(answer), *more]
    if answer.status not in (204, 304):
        headers = [h for h in headers if h[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
    await send_answer(send, answer.status, headers, body)


def _encoded_headers(answer: Response) -> list[tuple[bytes, bytes]]:
    return [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in answer.headers.items()]


def _problem(error: ReservationExpiryError) -> Response:
    """The service's own problem document, as a response of the objects'."""
    found = problem_of(error)
    return Response(found.get_data(), found.status_code, headers=list(found.headers.items()))
