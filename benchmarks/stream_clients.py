"""Readers of the stream of events, many of them, in a process of their own.

python -m benchmarks.stream_clients PORT COUNT SECONDS

Prints {"read": events read by all, "cut": streams that ended, "lateMs": [...]}: by how much
those of a few came after they were recorded, by the one clock of the machine.
"""

import asyncio
import json
import re
import resource
import sys
import time

MEASURED = 10  # of the streams: looking into all would be the client's time, not the server's
REQUEST = b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
_RECORDED = re.compile(rb'"recordedAt":([0-9]+)')


class Reader(asyncio.Protocol):
    """One stream. `late_ms` is None where it is not measured."""

    def __init__(self, late_ms: list[float] | None) -> None:
        self.late_ms = late_ms
        self.read = 0
        self.is_cut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(REQUEST)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.read += data.count(b"\nid: ") + data.startswith(b"id: ")
        if self.late_ms is not None:
            now_ms = time.time() * 1000
            self.late_ms += [now_ms - int(at) for at in _RECORDED.findall(data)]

    def connection_lost(self, error: Exception | None) -> None:
        self.is_cut = True


async def read(port: int, count: int, seconds: float) -> None:
    loop, late_ms = asyncio.get_running_loop(), []
    readers = [Reader(late_ms if number < MEASURED else None) for number in range(count)]
    for reader in readers:
        await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", port)
    print("open", flush=True)
    await asyncio.sleep(seconds)
    found = {
        "read": sum(reader.read for reader in readers),
        "cut": sum(reader.is_cut for reader in readers),
        "lateMs": late_ms,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(read(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
