"""People's code while it runs: whose it is, and that it ends nothing but itself.

A context variable says which object's code is running. It goes where the code goes, so a
task factory on the event loop sees every task that it begins, by whatever name
(`create_task`, `ensure_future`, `gather`, a TaskGroup), and tells the object. The factory
that was there before makes the task, on any loop.

What is meant for a whole process, `sys.exit()` above all, is a failure of the code that
raised it: a task would let it out of the loop, so it is caught before the task sees it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, Self


class CodeExited(Exception):
    """People's code raised what is meant to end the process."""


class Runs(Protocol):
    """Whoever's code it is: hears of the tasks that it begins."""

    def began(self, task: "asyncio.Task[Any]") -> None: ...


_whose: ContextVar[Runs | None] = ContextVar("whose", default=None)


def context_of(runs: Runs) -> Context:
    """A copy of the current context in which code is `runs`'s."""
    context = copy_context()
    context.run(_whose.set, runs)
    return context


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


class _TaskFactory:
    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.users = 1

    def __call__(self, loop: asyncio.AbstractEventLoop, code: Any, **options: Any) -> Any:
        context = options.get("context")
        runs = _whose.get() if context is None else context.get(_whose)
        if runs is None:
            return self._make(loop, code, options)
        guarded = code if isinstance(code, Guarded) else Guarded(code)
        task = self._make(loop, guarded, options)
        runs.began(task)
        return task

    def _make(self, loop: asyncio.AbstractEventLoop, code: Any, options: Any) -> Any:
        if self.before is None:
            return asyncio.Task(code, loop=loop, **options)
        return self.before(loop, code, **options)


class exits_as_failures(AbstractContextManager[None]):
    """What people's code raises within that is no error, as a CodeExited."""

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None and not isinstance(error, Exception | asyncio.CancelledError):
            raise _exited(error) from error


class Guarded(Coroutine[Any, Any, Any]):
    """A coroutine of people's code that raises CodeExited for what it raises that is no error.

    It may be awaited, or be a task's. (A `try` around an `await` could not tell the code's
    own GeneratorExit from that of being closed.)
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
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._code, name)  # its name and frame, for whoever shows the task


def _exited(error: BaseException) -> CodeExited:
    return CodeExited(f"it raised {error!r}, which is for ending a process, and ends this only")
