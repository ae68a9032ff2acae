"""People's code while it runs: whose it is, and that it ends nothing but itself.

A context variable says which object's code is running. It goes where the code goes, so a
task factory on the event loop sees every task that it begins, by whatever name
(`create_task`, `ensure_future`, `gather`, a TaskGroup), and tells the object. The factory
that was there before makes the task, on any loop.

What is meant for a whole process, `sys.exit()` above all, is a failure of the code that
raised it: a task would let it out of the loop, so it is caught before the task sees it.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, Protocol


class CodeExited(Exception):
    """People's code raised what is meant to end the process."""


class Runs(Protocol):
    """Whoever's code it is: hears of the tasks that it begins."""

    def began(self, task: "asyncio.Task[Any]") -> None: ...


_whose: ContextVar[Runs | None] = ContextVar("whose", default=None)


_OURS: set[int] = set()  # ids of code, which is for ever; its hash takes long


def ours(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks what begins people's code for us: it sees to its exits, and who makes a task of
    it to that task. (`Guarded` would do, and takes 3 us of a call.)"""
    _OURS.add(id(function.__code__))
    return function


@ours
async def called(method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a method of people's returns, plain or async; raises CodeExited for what it raises
    that is no error."""
    try:
        result = method(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise _exited(error) from error


def run_as(runs: Runs) -> None:
    """Has the current context's code be `runs`'s from now on."""
    _whose.set(runs)


def watch_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Has the loop's tasks told to whoever's code begins them, until `unwatch_tasks`."""
    factory = loop.get_task_factory()
    if isinstance(factory, _TaskFactory):
        factory.users += 1
    else:
        loop.set_task_factory(_TaskFactory(factory))


def unwatch_tasks(loop: asyncio.AbstractEventLoop) -> None:
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        return  # somebody has put another one over ours: that asks ours, and finds nobody's code
    factory.users -= 1
    if not factory.users:
        loop.set_task_factory(factory.before)


def new_task(
    loop: asyncio.AbstractEventLoop, code: Coroutine[Any, Any, Any], context: Context
) -> "asyncio.Task[Any]":
    """A task of what is `ours`, made as the loop makes its own."""
    factory = loop.get_task_factory()
    if type(factory) is _TaskFactory and factory.before is None:
        return asyncio.Task(code, loop=loop, context=context)
    return loop.create_task(code, context=context)


def call_task(code: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """A task of a call that somebody's code makes, and so that code's if it is an object's."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if _whose.get() is None and type(factory) is _TaskFactory and factory.before is None:
        return asyncio.Task(code, loop=loop)
    return loop.create_task(code)


class _TaskFactory:
    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.users = 1

    def __call__(self, loop: asyncio.AbstractEventLoop, code: Any, **options: Any) -> Any:
        context = options.get("context")
        runs = _whose.get() if context is None else context.get(_whose)
        if runs is not None and id(getattr(code, "cr_code", None)) in _OURS:
            runs = None  # whoever made it sees to it
        if runs is not None:
            code = Guarded(code)
        if self.before is None:
            task = asyncio.Task(code, loop=loop, **options)
        else:
            task = self.before(loop, code, **options)
        if runs is not None:
            runs.began(task)
        return task


def guarded(code: Callable[..., Any], *args: Any) -> Any:
    """What plain code of people's returns; raises CodeExited for what is no error."""
    try:
        return code(*args)
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise _exited(error) from error


class Guarded(Coroutine[Any, Any, Any]):
    """A coroutine of people's that is a task's, and raises CodeExited for what is no error.

    Unlike one that awaited it, it begins it whatever happens to its task before.
    """

    __slots__ = ("_code",)

    def __init__(self, code: Any) -> None:
        self._code = code

    def send(self, value: Any) -> Any:
        try:
            return self._code.send(value)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise _exited(error) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._code.throw(*error)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise _exited(error) from error

    def close(self) -> None:
        self._code.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Generator[Any, Any, Any] = self._code.__await__()
        return steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._code, name)  # its name and frame, for whoever shows the task


def _exited(error: BaseException) -> CodeExited:
    name = type(error).__name__  # and not how it shows itself: that is people's code, too
    return CodeExited(f"it raised {name}, which is for ending a process, and ends this only")
