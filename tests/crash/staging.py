"""What crash and process tests set a scene with: holds put straight into a database,
requests left in flight, a copy of what a crash left, a command run
to its end.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from reservation_expiry.domain.ids import aggregate_id
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.commands import HoldReservation
from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import Address
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work
from tests.support.clock import ManualClock
from tests.support.database import sql
from tests.support.server import COMMAND, Server, free_port, url_of, wait_for

LAUNCHER = [sys.executable, "-m", "tests.crash.launcher"]
END_WITHIN_SECONDS = 15
AT_ONCE = 2_000  # holds put into one transaction, which must not take long
TTL_SECONDS = 60  # of holds put into a file; what matters is when they are due


class HoldEach(Work):
    """Holds many reservations in one transaction, by the product's own command."""

    def __init__(self, names: Iterable[str], ttl_seconds: int) -> None:
        self.aggregate_ids = [aggregate_id(name) for name in names]
        self._ttl_seconds = ttl_seconds

    def run(self, unit: UnitOfWork) -> None:
        for reservation_id in self.aggregate_ids:
            HoldReservation(reservation_id, self._ttl_seconds).run(unit)


def hold_in(
    address: Address, names: Iterable[str], *, due_at_ms: int, ttl_seconds: int = TTL_SECONDS
) -> None:
    """Holds that began `ttl_seconds` before they are due, by a clock set to that time.

    May be called beside a running server: its next look at the alarms finds them.
    """
    prepare(address)
    names = list(names)
    application = ReservationApplication(address, ManualClock(due_at_ms - ttl_seconds * 1000))
    application.start(alarms=False)
    try:
        for first in range(0, len(names), AT_ONCE):
            application.writer.execute(HoldEach(names[first : first + AT_ONCE], ttl_seconds))
    finally:
        application.stop()


def copy_of(address: Address, folder: Path) -> Address:
    """A file and its write-ahead log as they lie there; a server's database is itself.

    Looking at the copy leaves the original's recovery to whoever opens it next.
    """
    if not isinstance(address, Path):
        return address
    folder.mkdir()
    for suffix in ("", "-wal"):
        source = address.with_name(address.name + suffix)
        if source.exists():
            shutil.copy(source, folder / source.name)
    return folder / address.name


def run_serve(
    database: Address, *options: str, port: int | None = None
) -> subprocess.CompletedProcess[str]:
    """`reservation-expiry serve`, run to its end.

    Made for what must end at once; one that serves instead is killed and fails the test.
    """
    command = [*COMMAND, "serve", "--port", str(port or free_port()), *options]
    env = {**os.environ, "RESERVATION_DATABASE": url_of(database)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=env
    ) as process:
        try:
            out, err = process.communicate(timeout=END_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def send_hold(server: Server, name: str, ttl_seconds: int = 3600) -> socket.socket:
    """Sends the request over a connection of its own; `read_answer` has what comes back."""
    flight = socket.create_connection(("127.0.0.1", server.port), timeout=15)
    flight.sendall(hold_request(name, ttl_seconds))
    return flight


def hold_request(name: str, ttl_seconds: int = 3600) -> bytes:
    body = f'{{"ttlSeconds":{ttl_seconds}}}'
    return (
        f"POST /reservations/{name} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


def read_answer(flight: socket.socket) -> bytes:
    """The answer as it came, empty if the connection ended or stalled without one."""
    with flight, suppress(OSError):
        return flight.recv(4096)
    return b""


def read_status(flight: socket.socket) -> int | None:
    answer = read_answer(flight)
    return int(answer.split()[1]) if answer else None


def expired_count(address: Address) -> int:
    ((count,),) = sql(address, "SELECT count(*) FROM events WHERE topic = 'reservation.Expired'")
    return count


def wait_for_expired(address: Address, count: int, within_seconds: float) -> None:
    wait_for(lambda: expired_count(address) >= count, within_seconds, 0.05)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_running(pid: int) -> bool:
    """Whether it lives: not gone, and not a zombie that nobody has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
