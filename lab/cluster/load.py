"""Clients that hold through one address all the time, and keep what they were told."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

ANSWER_SECONDS = 30.0
PAUSE_SECONDS = 0.02  # after an answer that is no success


class Holding:
    """`with Holding(port).going_on() as holding:`

    `held` are the names that were answered with 201, `asked` all that were asked for; a
    name is asked for once.
    """

    def __init__(
        self, *ports: int, ttl_seconds: int = 5, clients: int = 4, pause_seconds: float = 0.0
    ) -> None:
        self._ports = ports
        self._ttl_seconds = ttl_seconds
        self._clients = clients
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self.held: set[str] = set()
        self.asked: set[str] = set()
        self.statuses: Counter[int | str] = Counter()  # "none" where a connection ended
        self.slowest_seconds = 0.0
        self.without_retry_after = 0

    @contextmanager
    def going_on(self) -> Iterator["Holding"]:
        with ThreadPoolExecutor(self._clients) as pool:
            clients = [pool.submit(self._hold, client) for client in range(self._clients)]
            try:
                yield self
            finally:
                self._stop.set()
            for client in clients:
                client.result()

    def _hold(self, client: int) -> None:
        number = 0
        while not self._stop.wait(self._pause_seconds):
            number += 1
            name = f"c{client}-{number}"
            self.asked.add(name)
            began = time.monotonic()
            status = self._ask(self._ports[number % len(self._ports)], name)
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            self.statuses[status] += 1
            if status == 201:
                self.held.add(name)
            else:
                time.sleep(PAUSE_SECONDS)

    def _ask(self, port: int, name: str) -> int | str:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
        try:
            body = json.dumps({"ttlSeconds": self._ttl_seconds})
            connection.request("POST", f"/reservations/{name}", body)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return "none"
        finally:
            connection.close()
        if answer.status == 503 and answer.getheader("Retry-After") is None:
            self.without_retry_after += 1
        return answer.status
