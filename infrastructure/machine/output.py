"""Lines that leave this process: the alarm log, logging, and whatever else prints.

Nobody who serves or settles waits for a reader. A line goes into a bounded queue, from which
one thread for each descriptor writes, so that a stuck one holds up its own lines only; what
does not fit, or cannot be written, is dropped and counted. `start()` in each process that
serves, `stop()` at its end. Where nothing was started, as in a parent that forks, there is no
thread: a line is written by whoever has it, if it is taken at once.
"""

import errno
import io
import logging
import os
import select
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue

QUEUE_BYTES = 8 * 1024 * 1024  # of lines that wait, for each descriptor
ENTRY_BYTES = 100  # that each of them costs besides
PIECE_BYTES = select.PIPE_BUF  # which a pipe takes whole, between other processes' lines
LINE_BYTES = 64 * 1024  # of a line that does not end; then it is ended
STOP_SECONDS = 1.0
PATIENCE_SECONDS = 0.1  # of who writes without a thread
TELL_SECONDS = 10.0  # how often it is said that lines were dropped
_POLL_MS = 20
_JOIN_SECONDS = 0.1  # after the deadline, by which the thread ends itself
_NEWLINE = ord("\n")

logger = logging.getLogger(__name__)

Deadline = Callable[[], float | None]
"""Until when to wait (`time.monotonic()`); None for as long as it takes."""


class LineWriter:
    """Writes whole lines to a descriptor: `start()`, `write(lines)`, `stop()`.

    None of them raises for what becomes of a line, or waits for it: not for a reader that
    stands still or has gone, nor for a full disk or a closed descriptor. `dropped` counts the
    lines that were lost.
    """

    def __init__(self, descriptor: int | None, name: str) -> None:
        self.name = name
        self._descriptor = descriptor
        self._begin()

    def _begin(self) -> None:
        """As it is in a new process: a fork may have happened in the middle of anything."""
        self._pid = os.getpid()
        self._out = _Descriptor(self._descriptor)
        self._lock = threading.RLock()  # a signal's handler may print within a print
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._queued_bytes = 0
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None
        self._is_stuck = False
        self._told, self._told_at = 0, -TELL_SECONDS
        self.dropped = 0

    def start(self) -> None:
        if self._pid != os.getpid():
            self._begin()
        if self._thread is None:
            self._deadline, self._queue, self._queued_bytes = None, SimpleQueue(), 0
            name = f"lines to {self.name}"
            self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Waits until all is written, at most STOP_SECONDS. May be called twice."""
        self.end_by(time.monotonic() + STOP_SECONDS)
        thread, self._thread = self._thread, None
        if thread is not None and self._deadline is not None:
            thread.join(max(0.0, self._deadline - time.monotonic()) + _JOIN_SECONDS)

    def end_by(self, deadline: float) -> None:
        """Begins to stop: what is not written by then is dropped."""
        if self._deadline is None:
            self._deadline = deadline
            self._queue.put(None)

    def write(self, lines: bytes) -> None:
        """Takes whole lines: the last one ends, too."""
        if self._pid != os.getpid():
            self._begin()
        if not lines:
            return
        if self._thread is None:
            self._write_at_once(lines)
            return
        with self._lock:
            fits = self._queued_bytes + len(lines) + ENTRY_BYTES <= QUEUE_BYTES
            if fits:
                self._queued_bytes += len(lines) + ENTRY_BYTES
            else:
                self.dropped += lines.count(b"\n")
        if fits:
            self._queue.put(lines)

    def _write_at_once(self, lines: bytes) -> None:
        """Or nearly so; not at all where that was in vain the last time."""
        with self._lock:
            give_up_at = time.monotonic() + (0 if self._is_stuck else PATIENCE_SECONDS)
            dropped = self.dropped
            self._put(lines, lambda: give_up_at)
            self._is_stuck = self.dropped > dropped

    def _loop(self) -> None:
        while (lines := self._next()) is not None:
            self._put(lines, lambda: self._deadline)
            self._tell()

    def _next(self) -> bytes | None:
        """What waits, up to a piece: many short lines are one write."""
        first = self._queue.get()
        if first is None:
            return None
        lines = [first]
        size = len(first)
        try:
            while size < PIECE_BYTES:
                more = self._queue.get_nowait()
                if more is None:
                    self._queue.put(None)
                    break
                lines.append(more)
                size += len(more)
        except Empty:
            pass
        with self._lock:
            self._queued_bytes -= size + ENTRY_BYTES * len(lines)
        return b"".join(lines)

    def _put(self, lines: bytes, deadline: Deadline) -> None:
        for piece in _pieces(lines):
            written = self._out.put(piece, deadline)
            if written < len(piece):
                with self._lock:
                    self.dropped += piece.count(b"\n", written)

    def _tell(self) -> None:
        now = time.monotonic()
        if self.dropped > self._told and now - self._told_at >= TELL_SECONDS:
            self._told, self._told_at = self.dropped, now
            logger.warning("%d lines of %s could not be written", self._told, self.name)


class _Descriptor:
    """A way of our own to where a descriptor leads.

    So it is no matter to us who closes or reuses the descriptor, and none of what we need is
    a matter to others. O_NONBLOCK would be: it belongs to the open file, which other processes
    have, too. So a pipe or a terminal is opened once more, and a socket is asked each time not
    to wait; where a pipe may not be opened, it is asked first whether it takes a piece.
    """

    def __init__(self, number: int | None) -> None:
        self._number = number
        self._write: Callable[[bytes], int] | None = None
        self._own: int | socket.socket = -1
        self._may_block = False
        self._is_torn = False  # the last line that went out did not end

    def put(self, piece: bytes, deadline: Deadline) -> int:
        """How many bytes of it were written: fewer than it has if no more can be."""
        ended = b"\n" if self._is_torn else b""
        data, sent = ended + piece, 0
        try:
            write = self._write = self._write or self._open()
            waits = self._may_block
            while sent < len(data) and (not waits or self._takes_more(deadline)):
                try:
                    sent += write(data[sent:])
                except BlockingIOError:
                    if waits:  # though it was said to take more
                        time.sleep(_POLL_MS / 1000)
                    waits = True
        except OSError:
            pass  # it has gone, is closed or full
        if sent:
            self._is_torn = data[sent - 1] != _NEWLINE
        return max(0, sent - len(ended))

    def _takes_more(self, deadline: Deadline) -> bool:
        """Waits for it until the deadline. An error is left for the write to find."""
        poll = select.poll()
        poll.register(self._own, select.POLLOUT)
        while True:
            until = deadline()
            left_ms = _POLL_MS if until is None else (until - time.monotonic()) * 1000
            if poll.poll(max(0, min(left_ms, _POLL_MS))):
                return True
            if left_ms <= 0:
                return False

    def _open(self) -> Callable[[bytes], int]:
        if self._number is None:
            raise OSError(errno.EBADF, "it was closed before we began")
        mode = os.fstat(self._number).st_mode
        if stat.S_ISSOCK(mode):
            own = self._own = socket.socket(fileno=os.dup(self._number))
            return lambda data: own.send(data, socket.MSG_DONTWAIT)
        number = -1
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            number = _opened_again(self._number)
            self._may_block = number < 0
        if number < 0:
            number = os.dup(self._number)
        self._own = number
        return lambda data: os.write(number, data)


def _opened_again(number: int) -> int:
    """Another open file for the same pipe or terminal, or -1."""
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        return os.open(f"/proc/self/fd/{number}", flags)
    return -1


class LineStream(io.TextIOBase):
    """Stands in for `sys.stdout` or `sys.stderr`: what is printed goes to a LineWriter.

    Each thread's prints become whole lines: one that has not ended waits for its end, a flush
    or LINE_BYTES. It cannot be closed.
    """

    name = "<lines>"
    encoding = "utf-8"
    errors = "backslashreplace"  # nothing that is printed raises

    def __init__(self, writer: LineWriter, descriptor: int) -> None:
        self._writer = writer
        self._descriptor = descriptor
        self._begun = threading.local()
        self.buffer = _LineBuffer(self)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.take(text.encode(self.encoding, self.errors))
        return len(text)

    def take(self, data: bytes) -> None:
        data = getattr(self._begun, "line", b"") + data
        end = data.rfind(b"\n") + 1
        self._begun.line = data[end:]
        if end:
            self._writer.write(data[:end])
        if len(self._begun.line) > LINE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Ends this thread's line, if it has begun one."""
        line = getattr(self._begun, "line", b"")
        if line:
            self._begun.line = b""
            self._writer.write(line + b"\n")

    def reconfigure(self, **_: object) -> None:
        """Lines are as they are."""

    def close(self) -> None:
        """Stays open for everybody else."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        try:
            return os.isatty(self._descriptor)
        except OSError:
            return False


class _LineBuffer(io.BufferedIOBase):
    """`sys.stdout.buffer`: the same, for bytes."""

    def __init__(self, stream: LineStream) -> None:
        self.raw = stream
        self._stream = stream

    # Any buffer, which has a name from Python 3.12 on.
    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        taken = bytes(data)
        self._stream.take(taken)
        return len(taken)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Stays open for everybody else."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


class LineHandler(logging.Handler):
    """Logging by a LineWriter."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # as every handler of `logging` does
            self.handleError(record)
        else:
            self._writer.write(line.encode("utf-8", "backslashreplace") + b"\n")


@cache
def standard_output() -> LineWriter:
    """What the alarm log is written by."""
    return LineWriter(None if sys.__stdout__ is None else 1, "standard output")


@cache
def standard_error() -> LineWriter:
    return LineWriter(None if sys.__stderr__ is None else 2, "standard error")


def install() -> None:
    """Has what is printed go by them too, unless somebody has put something else in the place
    of `sys.stdout` or `sys.stderr`. Holds for this process and its forks."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = LineStream(standard_output(), 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = LineStream(standard_error(), 2)


def start() -> None:
    """`install`, and from now on nobody in this process waits for a line."""
    install()
    standard_output().start()
    standard_error().start()


def stop() -> None:
    """Waits until all is written, at most STOP_SECONDS for both. May be called twice."""
    deadline = time.monotonic() + STOP_SECONDS
    for writer in (standard_output(), standard_error()):
        writer.end_by(deadline)
    for writer in (standard_output(), standard_error()):
        writer.stop()


def lines_dropped() -> int:
    """How many lines this process has lost."""
    return standard_output().dropped + standard_error().dropped


def _pieces(lines: bytes) -> Iterator[bytes]:
    """Cut between lines, each no longer than PIECE_BYTES unless a line alone is."""
    start = 0
    while start < len(lines):
        end = start + PIECE_BYTES
        if end < len(lines):
            end = lines.rfind(b"\n", start, end) + 1 or lines.find(b"\n", end) + 1 or len(lines)
        yield lines[start:end]
        start = end
