"""The parent of the serving processes: it listens, forks them, replaces what dies, and ends them.

It runs no request and holds no connection, so that a fork takes nothing along that must not
be shared; what it has loaded its children have loaded, and are there in milliseconds. It has
one thread, which waits for signals one at a time: none is acted on in the middle of anything,
and a second one while it stops changes nothing.
"""

import errno
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from reservation_expiry.api.metrics_folder import mark_dead
from reservation_expiry.domain.errors import ReservationExpiryError
from reservation_expiry.infrastructure.settings import SHUTDOWN_GRACE_SECONDS

LISTEN_BACKLOG = 1024
START_SECONDS = 30.0  # within which a process says that it serves
RESPAWN_SECONDS = 0.1  # between a death and its successor
MAX_DEATHS, DEATHS_SECONDS = 20, 60  # more in that time means that they cannot live
KILL_AFTER_SECONDS = SHUTDOWN_GRACE_SECONDS + 1.0  # a process's own end comes first
ORPHAN_CHECK_SECONDS = 0.5
READY, REFUSED = b"+", b"-"  # what a process says first; a sentence follows the second
REPORT_BYTES = 2_000  # of that, in one write

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)

logger = logging.getLogger(__name__)

Report = Callable[[], None]
RunProcess = Callable[[Sequence[socket.socket], Report], None]
"""What each process does: serves on the sockets, says by `report()` that it does, and returns
when it has drained. Called once in each child."""


class CannotListen(ReservationExpiryError):
    """The address is taken, not ours, or not allowed."""

    code = "cannot-listen"


class CannotServe(ReservationExpiryError):
    """A process could not begin to serve; the text says why."""

    code = "cannot-serve"


def listen(host: str, port: int, processes: int) -> list[list[socket.socket]]:
    """For each process, a listening socket on every address that `host` stands for.

    Several processes have sockets of their own on one port, among which the kernel shares
    out what comes (SO_REUSEPORT). With that option a second server on the port would start
    without a word, so a plain bind asks first. Raises CannotListen.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {_reason(error)}") from error
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    sockets: list[list[socket.socket]] = [[] for _ in range(processes)]
    trouble: OSError | None = None
    for family, address in addresses:
        try:
            _bound(family, address, shared=False).close()
            for own in sockets:
                own.append(_bound(family, address, shared=processes > 1))
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise CannotListen(f"cannot listen on {host}:{port}: {_reason(error)}") from error
            trouble = error  # `localhost` may stand for an address that this machine has not
    if not all(sockets):
        raise CannotListen(f"cannot listen on {host}:{port}: {_reason(trouble)}") from trouble
    for own in sockets:
        for listener in own:
            listener.listen(LISTEN_BACKLOG)
    return sockets


def _bound(family: int, address: tuple[Any, ...], *, shared: bool) -> socket.socket:
    # Named, for asyncio sets TCP_NODELAY only on what is known to be TCP; without it the second
    # packet of an answer waits 40 ms for the client to confirm the first.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def _reason(error: BaseException | None) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


@dataclass(eq=False)
class _Child:
    """One process: `number` of its sockets, and the pipe on which it reports."""

    pid: int
    number: int
    reports: int
    said: bytes = b""

    def listen(self) -> None:
        if not self.said:
            try:
                self.said = os.read(self.reports, REPORT_BYTES)
            except BlockingIOError:
                return

    @property
    def serves(self) -> bool:
        return self.said == READY

    @property
    def refusal(self) -> str | None:
        """Why it does not serve, if it said so."""
        return self.said[1:].decode(errors="replace") if self.said[:1] == REFUSED else None

    def close(self) -> None:
        os.close(self.reports)


class Parent:
    """`serve()`, until a signal ends it.

    `load` gives what the processes run; it is called at the start, and again on SIGHUP, when
    each process is replaced by one that has begun to serve first. If the new one does not,
    the old one goes on. SIGINT and SIGTERM drain and end all.
    """

    def __init__(self, load: Callable[[], RunProcess], sockets: list[list[socket.socket]]) -> None:
        self._load = load
        self._run = load()
        self._sockets = sockets
        self._children: dict[int, _Child] = {}  # by pid
        self._retiring: set[int] = set()  # pids that were asked to end
        self._owed: list[tuple[float, int]] = []  # (when, number) of processes to be started
        self._deaths: list[float] = []
        self._newer: RunProcess | None = None  # while it is not known whether it serves
        self._successors: dict[int, _Child] = {}  # by number, until they serve

    def serve(self, announce: Callable[[], None]) -> int:
        """Starts all processes, calls `announce` when they serve, and stays until they end.

        Returns the exit code: 0 after a signal to stop, 1 if processes keep dying. Raises
        CannotServe if one cannot begin to.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            code = 0
            if self._start():
                announce()
                code = self._supervise()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # what they ask for has been done
            return code
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self) -> bool:
        """Whether all serve; a signal to stop may have come first."""
        for number in range(len(self._sockets)):
            self._fork(number, self._run)
        deadline = time.monotonic() + START_SECONDS
        while not self._all_serve():
            if self._next_signal(0.02) in (signal.SIGINT, signal.SIGTERM):
                self._end_all()
                return False
            for child in self._children.values():
                child.listen()
            for child in self._reap():  # an alarm that was overdue may have killed it
                if child.refusal is not None:
                    self._end_all()
                    raise CannotServe(child.refusal)
                self._after_death(child)
            self._start_owed()
            if self._die_too_often or time.monotonic() > deadline:
                self._end_all()
                raise CannotServe("no process has begun to serve")
        return True

    def _all_serve(self) -> bool:
        return len(self._children) == len(self._sockets) and all(
            child.serves for child in self._children.values()
        )

    @property
    def _die_too_often(self) -> bool:
        return len(self._deaths) > MAX_DEATHS

    def _supervise(self) -> int:
        while True:
            number = self._next_signal(self._pause())
            if number in (signal.SIGINT, signal.SIGTERM):
                self._end_all()
                return 0
            if number == signal.SIGHUP:
                self._reload()
            self._follow_reload()
            for child in self._reap():
                self._after_death(child)
            if self._die_too_often:
                logger.error("%d processes died in %d s: giving up", MAX_DEATHS, DEATHS_SECONDS)
                self._end_all()
                return 1
            self._start_owed()

    def _next_signal(self, seconds: float) -> int | None:
        found = signal.sigtimedwait(_SIGNALS, seconds)
        return None if found is None else found.si_signo

    def _pause(self) -> float:
        if self._successors:
            return 0.05
        if self._owed:
            return max(min(self._owed)[0] - time.monotonic(), 0.0)
        return 60.0

    def _fork(self, number: int, run: RunProcess) -> _Child:
        reports, report = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reports)
            self._leave_parents_things(number)
            _be_a_child(
                lambda: run(self._sockets[number], lambda: _tell(report, READY)), parent, report
            )
        os.close(report)
        child = self._children[pid] = _Child(pid, number, reports)
        return child

    def _leave_parents_things(self, number: int) -> None:
        for child in self._children.values():
            child.close()
        for i, sockets in enumerate(self._sockets):
            for listener in sockets if i != number else ():
                listener.close()

    def _reap(self) -> list[_Child]:
        """Processes that have ended without having been asked to."""
        dead = []
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            child = self._children.pop(pid, None)
            if child is None:
                continue
            child.listen()
            child.close()
            mark_dead(pid)
            if pid in self._retiring:
                self._retiring.discard(pid)
                continue
            dead.append(child)
            if child.refusal is None:
                logger.error("process %d died: %s", pid, _how(status))
        return dead

    def _after_death(self, dead: _Child) -> None:
        """Has a dead process replaced, unless its successor is there."""
        if self._successors.get(dead.number) is dead:
            self._give_up_reload(dead.refusal or "its process died")
            return
        now = time.monotonic()
        self._deaths = [at for at in self._deaths if now - at < DEATHS_SECONDS] + [now]
        if dead.refusal is not None:
            logger.error("a process cannot serve: %s", dead.refusal)
        if dead.number not in self._successors:
            self._owed.append((now + RESPAWN_SECONDS, dead.number))

    def _start_owed(self) -> None:
        now = time.monotonic()
        due = [number for at, number in self._owed if at <= now]
        self._owed = [(at, number) for at, number in self._owed if at > now]
        for number in due:
            self._fork(number, self._run)

    def _reload(self) -> None:
        if self._successors:
            return  # it is being done
        try:
            self._newer = self._load()
        except ReservationExpiryError as error:
            self._give_up_reload(str(error))
            return
        for number in range(len(self._sockets)):
            self._successors[number] = self._fork(number, self._newer)

    def _follow_reload(self) -> None:
        """Once every successor serves, the old processes end."""
        for successor in self._successors.values():
            successor.listen()
        if self._newer is None or not all(c.serves for c in self._successors.values()):
            return
        news = set(self._successors.values())
        self._run, self._newer = self._newer, None
        self._successors.clear()
        self._owed.clear()
        for child in self._children.values():
            if child not in news:
                self._ask_to_end(child)
        logger.warning("SIGHUP: new processes have replaced the old ones")

    def _give_up_reload(self, why: str) -> None:
        logger.error("SIGHUP: the new processes cannot serve (%s); the old ones go on", why)
        successors = set(self._successors.values())
        self._newer = None
        self._successors.clear()
        for child in self._children.values():
            if child in successors:
                self._ask_to_end(child)
        served = {c.number for c in self._children.values() if c not in successors}
        owed = {number for _, number in self._owed}
        for number in set(range(len(self._sockets))) - served - owed:
            self._owed.append((time.monotonic(), number))

    def _ask_to_end(self, child: _Child) -> None:
        self._retiring.add(child.pid)
        os.kill(child.pid, signal.SIGTERM)

    def _end_all(self) -> None:
        """Has all drain, and kills what has not ended when the grace is over."""
        for child in self._children.values():
            self._ask_to_end(child)
        deadline = time.monotonic() + KILL_AFTER_SECONDS
        while self._children and time.monotonic() < deadline:
            self._next_signal(0.05)  # more signals of any kind change nothing
            self._reap()
        for child in self._children.values():
            logger.error("process %d did not end within its grace and is killed", child.pid)
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        self._children.clear()


def _be_a_child(run: Callable[[], None], parent: int, report: int) -> NoReturn:
    """The life of a process. Nothing of the parent's is ended at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until there is something to drain
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    _end_with_parent(parent)
    code = 1
    try:
        run()
        code = 0
    except ReservationExpiryError as error:
        _tell(report, REFUSED + str(error).encode()[: REPORT_BYTES - 1])
    except BaseException as error:  # whatever it is, it must not go on in the parent's code
        logger.exception("the process ends: %s", type(error).__name__)
    finally:
        logging.shutdown()
        os._exit(code)


def _tell(report: int, word: bytes) -> None:
    try:
        os.write(report, word)
    except OSError as error:  # the parent is gone, which is seen to elsewhere
        logger.debug("the parent cannot be told of this process: %s", error)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _end_with_parent(parent: int) -> None:
    """Has this process drain and exit once its parent is gone, killed included."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_CHECK_SECONDS)
        logger.error("the parent process is gone: shutting down")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SHUTDOWN_GRACE_SECONDS)
        os._exit(1)  # as the parent would have done to one that does not come to an end

    threading.Thread(target=watch, name="orphan-watch", daemon=True).start()
