"""An event loop in a thread of its own, for tests that ask from outside of it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reservation_expiry.api.schedules import Schedules, schedule_host
from reservation_expiry.infrastructure.application import ReservationApplication


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def schedules_of(application: ReservationApplication) -> Iterator[Schedules]:
    """The schedules of a process, whose event loop runs beside the test."""

    host = schedule_host(application)

    async def made() -> Schedules:
        return Schedules(host.call)

    with loop_in_a_thread() as loop:
        schedules = asyncio.run_coroutine_threadsafe(made(), loop).result()
        try:
            yield schedules
        finally:
            asyncio.run_coroutine_threadsafe(host.stop(), loop).result()
