"""The site: PostgreSQL, nodes, the proxy; and what can be done to them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab.cluster.haproxy import HAProxy
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from tests.support.database import sql
from tests.support.postgres import PostgresServer
from tests.support.server import Server, wait_for

SCHEMA = "cluster"
CATCH_SECONDS = 4.0  # how long to wait for the moment at which a fault is to strike
STUCK_SECONDS = 0.1
DISK_MIB = 400  # of a small disk; a server's first files take 60, its WAL segments 64

_CLAIMED = """
SELECT id FROM alarms WHERE position('"token":"' IN convert_from(job_state, 'UTF8')) > 0"""


class Site:
    """`with Site(folder).running() as site:`

    With `small_disk` the database server has a file system of its own, to be filled.
    """

    def __init__(self, folder: Path, nodes: int = 3, *, small_disk: bool = False) -> None:
        self.folder = folder
        self._disk = folder / "disk" if small_disk else None
        self.postgres = PostgresServer(self._mounted(self._disk))
        self.nodes: list[Server] = []
        self._count = nodes
        self._stuck: set[tuple] = set()
        self.went_ms: list[int] = []  # when a node stood still, for good or for long

    @contextmanager
    def running(self) -> Iterator["Site"]:
        try:
            self.postgres.start()
            self.database = self.postgres.address(SCHEMA)
            for number in range(self._count):
                named = f"{self.database.url}&application_name={node_name(number)}"
                node = Server(
                    self.folder, "--log-level", "warning", database=PostgresAddress(named)
                )
                self.nodes.append(node.start())
            self.proxy = HAProxy(self.folder, [[node.port for node in self.nodes]])
            self.proxy.start()
            yield self
        finally:
            self._end()

    def _end(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.stop()
        for node in self.nodes:
            node.ensure_gone()
        self.postgres.remove()
        if self._disk is not None:
            subprocess.run(["umount", "--lazy", self._disk], check=True)

    @staticmethod
    def _mounted(disk: Path | None) -> Path | None:
        if disk is None:
            return None
        disk.mkdir()
        size = f"size={DISK_MIB}m,mode=777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=True)
        (disk / "server").mkdir()
        return disk / "server"

    # What befalls a node. Each waits until it is as it was.

    def kill(self, number: int) -> str:
        """kill -9 of a node, while it has alarms in hand if that can be caught."""
        caught = self._freeze_when(number, self._has_claims)
        self.nodes[number].kill()
        self.nodes[number].start()
        return "with alarms in hand" if caught else ""

    def freeze(self, number: int, seconds: float) -> str:
        """SIGSTOP, for longer than its lease."""
        caught = self._freeze_when(number, self._has_claims)
        self._thaw_after(number, seconds)
        return f"for {seconds:g} s" + (", with alarms in hand" if caught else "")

    def freeze_in_a_transaction(self, number: int, seconds: float) -> str:
        """SIGSTOP while it has the log's lock."""
        caught = self._freeze_when(number, self._is_in_a_transaction)
        self._thaw_after(number, seconds)
        return f"for {seconds:g} s" + ("" if caught else ", but NOT caught in a transaction")

    def cut(self, number: int) -> str:
        """Ends all its connections to the database."""
        ended = self.postgres.run(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            f" WHERE application_name = '{node_name(number)}'"
        )
        self.nodes[number].wait_until_ready()
        return f"{ended[0][0]} connections"

    def restart_postgres(self) -> str:
        """A restart of the database server."""
        began = time.monotonic()
        self.postgres.stop()
        self.postgres.start()
        took = time.monotonic() - began
        for node in self.nodes:
            node.wait_until_ready()
        return f"away for {took:.1f} s, all nodes ready after {time.monotonic() - began:.1f} s"

    def fill_disk(self, seconds: float) -> str:
        """Leaves the database server no room, for so long."""
        began = time.monotonic()
        filler = self._disk / "filler"
        while time.monotonic() - began < seconds:
            with filler.open("ab", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(65_536))
            time.sleep(0.05)  # what the server gave up meanwhile is taken, too
        filler.unlink()
        restarted = self.postgres.process.poll() is not None
        if restarted:  # as whoever looks after it would have done
            self.postgres.start()
        freed = time.monotonic()
        for node in self.nodes:
            node.wait_until_ready()
        took = time.monotonic() - freed
        return (
            f"full for {seconds:g} s, all nodes ready {took:.1f} s after"
            f"{', the server had ended' if restarted else ''}"
        )

    def _freeze_when(self, number: int, condition: Callable[[int], bool]) -> bool:
        """Stops all processes of a node, if possible where `condition(number)` holds."""
        group = self.nodes[number].process.pid
        self._stuck = self._claims_that_stay()  # of a fault before this one
        deadline = time.monotonic() + CATCH_SECONDS
        while True:
            os.killpg(group, signal.SIGSTOP)
            stopped_ms = time.time_ns() // 1_000_000
            caught = condition(number)
            if caught or time.monotonic() > deadline:
                self.went_ms.append(stopped_ms)
                return caught
            os.killpg(group, signal.SIGCONT)
            time.sleep(0.003)

    def _thaw_after(self, number: int, seconds: float) -> None:
        time.sleep(seconds)
        os.killpg(self.nodes[number].process.pid, signal.SIGCONT)
        wait_for(lambda: self.nodes[number].get("/readyz").status == 200, 15)

    def _has_claims(self, number: int) -> bool:
        """Whether claims stay that did not stay before the node stood still."""
        return bool(self._claims_that_stay() - self._stuck)

    def _claims_that_stay(self) -> set[tuple]:
        before = set(sql(self.database, _CLAIMED))
        if before:
            time.sleep(STUCK_SECONDS)
        return before and before & set(sql(self.database, _CLAIMED))

    def _is_in_a_transaction(self, number: int) -> bool:
        return bool(
            self.postgres.run(
                "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
                f" AND application_name = '{node_name(number)}'"
            )
        )


def node_name(number: int) -> str:
    return f"node-{number}"
