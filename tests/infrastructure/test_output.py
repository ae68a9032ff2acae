"""Lines out of a process: nobody waits for a reader, and nothing that becomes of one raises."""

import fcntl
import io
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.infrastructure.alarms.attempt import Attempt, Claim
from reservation_expiry.infrastructure.alarms.log import AlarmLog
from reservation_expiry.infrastructure.machine import output
from reservation_expiry.infrastructure.machine.output import LineHandler, LineStream, LineWriter
from tests.support.server import wait_for

SMALL_PIPE = 4096  # bytes, the smallest that there is
AT_ONCE_SECONDS = 0.5  # far less than any wait for a reader would take

Pipe = tuple[int, int]


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "STOP_SECONDS", 0.2)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """(its reading end, its writing end), with room for one page."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    yield reader, writer
    for end in (reader, writer):
        with suppress(OSError):
            os.close(end)


@pytest.fixture
def make_writer() -> Iterator[Callable[..., LineWriter]]:
    made: list[LineWriter] = []

    def make(descriptor: int | None, *, started: bool = True) -> LineWriter:
        made.append(LineWriter(descriptor, "a test"))
        if started:
            made[-1].start()
        return made[-1]

    yield make
    for writer in made:
        writer.stop()
        if isinstance(writer._out._own, socket.socket):  # it lives as long as its process
            writer._out._own.close()


def everything(reader: int) -> bytes:
    """What can be read of a pipe without waiting."""
    os.set_blocking(reader, False)
    parts = []
    with suppress(BlockingIOError):
        while part := os.read(reader, 65_536):
            parts.append(part)
    return b"".join(parts)


def numbered(count: int, size: int = 100) -> list[bytes]:
    return [f"{number:06}".encode().ljust(size - 1, b".") + b"\n" for number in range(count)]


# A reader that stands still


@pytest.mark.parametrize("started", [True, False])
def test_f34_an_unread_pipe_keeps_nobody_waiting_and_what_does_not_fit_is_counted(
    pipe: Pipe,
    make_writer: Callable[..., LineWriter],
    monkeypatch: pytest.MonkeyPatch,
    started: bool,
) -> None:
    monkeypatch.setattr(output, "QUEUE_BYTES", 5_000)
    monkeypatch.setattr(output, "PATIENCE_SECONDS", 0.0)
    reader, end = pipe
    writer = make_writer(end, started=started)
    began = time.monotonic()
    for line in numbered(500):
        writer.write(line)
    assert time.monotonic() - began < AT_ONCE_SECONDS
    writer.stop()
    assert time.monotonic() - began < output.STOP_SECONDS + 2 * AT_ONCE_SECONDS
    written = everything(reader).splitlines(keepends=True)
    assert written == numbered(500)[: len(written)]
    assert writer.dropped == 500 - len(written) > 300


def test_f34_what_fitted_comes_out_once_it_is_read_and_the_rest_is_told(
    pipe: Pipe,
    make_writer: Callable[..., LineWriter],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(output, "QUEUE_BYTES", 50_000)
    reader, end = pipe
    writer = make_writer(end)
    for line in numbered(1_000):
        writer.write(line)
    got = b""
    while got.count(b"\n") < 1_000 - writer.dropped:
        got += os.read(reader, 65_536)
    assert got == b"".join(numbered(1_000)[: 1_000 - writer.dropped])
    assert 600 < writer.dropped < 800
    wait_for(lambda: f"{writer.dropped} lines of a test could not be written" in caplog.text, 2)
    writer.write(b"and on\n")
    assert os.read(reader, 65_536) == b"and on\n"


def test_f34_one_that_is_stuck_holds_up_no_other(
    pipe: Pipe, make_writer: Callable[..., LineWriter], tmp_path: Path
) -> None:
    _, end = pipe
    stuck = make_writer(end)
    stuck.write(b"x" * 10_000 + b"\n")
    with (tmp_path / "log").open("wb") as log:
        other = make_writer(log.fileno())
        other.write(b"a line\n")
        wait_for(lambda: (tmp_path / "log").read_bytes() == b"a line\n", 2)


def test_f34_the_flags_of_a_descriptor_that_others_have_too_are_left_alone(
    pipe: Pipe, make_writer: Callable[..., LineWriter]
) -> None:
    _, end = pipe
    writer = make_writer(end)
    writer.write(b"x" * 10_000 + b"\n")
    time.sleep(0.05)
    assert os.get_blocking(end)


def test_f34_a_pipe_that_may_not_be_opened_again_is_asked_first(
    pipe: Pipe, make_writer: Callable[..., LineWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that root has made for a process of somebody else's."""
    monkeypatch.setattr(output, "_opened_again", lambda number: -1)
    reader, end = pipe
    writer = make_writer(end)
    for line in numbered(500):
        writer.write(line)
    writer.stop()
    written = everything(reader)
    assert written.endswith(b"\n")
    assert written.count(b"\n") + writer.dropped == 500


# What can become of one


def test_f34_a_reader_that_has_gone(pipe: Pipe, make_writer: Callable[..., LineWriter]) -> None:
    reader, end = pipe
    os.close(reader)
    writer = make_writer(end)
    writer.write(b"one\ntwo\n")
    wait_for(lambda: writer.dropped == 2, 2)


def test_f34_a_full_disk(make_writer: Callable[..., LineWriter]) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        writer = make_writer(full.fileno())
        writer.write(b"one\n")
        wait_for(lambda: writer.dropped == 1, 2)


@pytest.mark.parametrize("started", [True, False])
def test_f34_a_descriptor_that_is_closed_or_never_was_open(
    pipe: Pipe, make_writer: Callable[..., LineWriter], started: bool
) -> None:
    for end in pipe:
        os.close(end)
    for descriptor in (pipe[1], None):
        writer = make_writer(descriptor, started=started)
        writer.write(b"one\n")
        wait_for(lambda writer=writer: writer.dropped == 1, 2)


def test_f34_a_descriptor_that_is_closed_and_used_anew_gets_nothing_of_ours(
    pipe: Pipe, make_writer: Callable[..., LineWriter], tmp_path: Path
) -> None:
    reader, end = pipe
    writer = make_writer(end)
    writer.write(b"one\n")
    assert os.read(reader, 100) == b"one\n"
    with (tmp_path / "a database").open("wb") as database:
        os.dup2(database.fileno(), end)
        writer.write(b"two\n")
        assert os.read(reader, 100) == b"two\n"
    assert (tmp_path / "a database").read_bytes() == b""


def test_f34_a_socket_that_nobody_reads(make_writer: Callable[..., LineWriter]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        writer = make_writer(ours.fileno())
        for line in numbered(2_000):
            writer.write(line)
        writer.stop()
        assert writer.dropped > 0
        written = everything(theirs.fileno())
        assert written.rpartition(b"\n")[0].count(b"\n") + 1 + writer.dropped == 2_000


def test_f34_a_line_that_was_cut_off_is_ended_before_the_next(
    make_writer: Callable[..., LineWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up takes half a line."""
    taken, room = [], [10]

    def write(number: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        data = bytes(data)[: room[0]]
        room[0] -= len(data)
        taken.append(data)
        return len(data)

    monkeypatch.setattr("reservation_expiry.infrastructure.machine.output.os.write", write)
    with (tmp_path / "log").open("wb") as log:
        writer = make_writer(log.fileno(), started=False)
        writer.write(b"first\nsecond\n")
        room[0] = 100
        writer.write(b"third\n")
    assert b"".join(taken) == b"first\nseco\nthird\n"
    assert writer.dropped == 1


def test_f34_lines_of_several_processes_on_one_pipe_are_not_mixed(tmp_path: Path) -> None:
    program = (
        "import sys; from reservation_expiry.infrastructure.machine import output; output.start()\n"
        "for n in range(300): print(sys.argv[1] * 500)\n"
        "output.stop()"
    )
    reader, end = os.pipe()
    processes = [
        subprocess.Popen([sys.executable, "-c", program, letter], stdout=end) for letter in "abc"
    ]
    os.close(end)
    with open(reader, "rb") as lines:
        got = lines.read().split(b"\n")
    assert {process.wait() for process in processes} == {0}
    assert sorted(set(got)) == [b"", b"a" * 500, b"b" * 500, b"c" * 500]
    assert len(got) == 901


# Starting, stopping, forking


def test_f34_a_stop_writes_what_waits_and_may_be_called_twice(
    make_writer: Callable[..., LineWriter], tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb") as log:
        writer = make_writer(log.fileno())
        for line in numbered(5_000):
            writer.write(line)
        writer.stop()
        writer.stop()
        assert (tmp_path / "log").read_bytes() == b"".join(numbered(5_000))
        writer.write(b"after\n")
        writer.start()
        writer.write(b"again\n")
        writer.stop()
        assert (tmp_path / "log").read_bytes().endswith(b".\nafter\nagain\n")
    assert writer.dropped == 0


def test_f34_no_thread_is_there_before_it_is_started(
    make_writer: Callable[..., LineWriter], tmp_path: Path
) -> None:
    before = threading.enumerate()
    with (tmp_path / "log").open("wb") as log:
        make_writer(log.fileno(), started=False).write(b"at once\n")
        assert (tmp_path / "log").read_bytes() == b"at once\n"
    assert threading.enumerate() == before


def test_f34_a_fork_has_its_own_and_not_what_its_parent_had_yet_to_write(
    pipe: Pipe, make_writer: Callable[..., LineWriter]
) -> None:
    reader, end = pipe
    writer = make_writer(end)
    for line in numbered(200):  # some of which wait
        writer.write(line)
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        writer.start()
        writer.write(b"of the child\n")
        writer.stop()
        os._exit(0)
    got = b""
    while got.count(b"\n") < 201:
        got += os.read(reader, 65_536)
    os.waitpid(child, 0)
    assert sorted(got.splitlines(keepends=True)) == sorted([*numbered(200), b"of the child\n"])


# In the place of sys.stdout, and under logging


@pytest.fixture
def stream(tmp_path: Path, make_writer: Callable[..., LineWriter]) -> Iterator[LineStream]:
    with (tmp_path / "log").open("wb") as log:
        yield LineStream(make_writer(log.fileno(), started=False), log.fileno())


def test_f34_prints_are_whole_lines_whoever_else_prints(stream: LineStream, tmp_path: Path) -> None:
    print("a", "b", end=" ", file=stream)
    other = threading.Thread(target=print, args=("other",), kwargs={"file": stream})
    other.start()
    other.join()
    print("c\nd", file=stream)
    print("flushed", end="", flush=True, file=stream)
    stream.buffer.write(b"bytes\n")
    assert (tmp_path / "log").read_text() == "other\na b c\nd\nflushed\nbytes\n"


def test_f34_a_stand_in_does_what_libraries_ask_of_a_stream(stream: LineStream) -> None:
    assert stream.writable()
    assert not stream.isatty()
    assert stream.encoding == "utf-8"
    assert os.fstat(stream.fileno())
    stream.reconfigure(line_buffering=True)
    stream.close()
    assert not stream.closed
    assert stream.write("still there\n") == len("still there\n")
    with pytest.raises(TypeError):
        stream.write(b"bytes")  # type: ignore[arg-type]


def test_f34_text_that_is_no_unicode_is_written_all_the_same(
    stream: LineStream, tmp_path: Path
) -> None:
    print("half \ud83d of one", file=stream)
    assert (tmp_path / "log").read_text() == "half \\ud83d of one\n"


def test_f34_a_line_that_never_ends_is_ended(stream: LineStream, tmp_path: Path) -> None:
    for _ in range(output.LINE_BYTES + 1):
        stream.write("x")
    assert (tmp_path / "log").read_text() == "x" * (output.LINE_BYTES + 1) + "\n"


def test_f34_a_record_of_the_log_is_one_piece_and_a_bad_one_raises_nothing(
    stream: LineStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    logger = logging.Logger("of a test")
    logger.addHandler(LineHandler(stream._writer))
    logger.error("what %s", "happened")
    logger.error("too few: %s %s", 1)  # noqa: PLE1206
    assert (tmp_path / "log").read_text() == "what happened\n"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("error", [Unspeakable(), ValueError("half \udcff of one")])
def test_f34_an_alarm_whose_error_cannot_be_said_has_its_line(error: Exception) -> None:
    lines = io.BytesIO()
    claim = Claim("reservation/seat-1", AlarmSlot(1_000, 1, "token"), b"")
    AlarmLog(lines).write([Attempt(claim, "retry", 1_500, error)])
    assert lines.getvalue().count(b"\n") == 1
    assert type(error).__name__.encode() in lines.getvalue()
