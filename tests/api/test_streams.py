"""F44, F77: streams that cannot be used, locales that are not UTF-8, Ctrl-C: an exit code and a
sentence. Each in processes of their own."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from reservation_expiry.api.cli import main
from reservation_expiry.infrastructure.application import ReservationApplication
from tests.support.server import COMMAND, free_port

STREAMS = {
    "closed output": ("{} >&-", {"list": 3, "list --json": 3, "log export -": 3, "--help": 3}),
    "full output": ("{} >/dev/full", {"list": 3, "events": 3, "log export -": 3, "--help": 3}),
    "unread output": ("{} | true", {"list": 0, "events": 0, "log export -": 0, "--help": 0}),
    "closed input": ("{} <&-", {"log import - --database {new}.db": 3, "list": 0}),
    "closed error": ("{} 2>&-", {"nonsense": 2, "hold seat-2 --ttl 5": 0, "log verify": 0}),
    "full error": ("{} 2>/dev/full", {"nonsense": 2, "log export -": 0}),
    "all closed": ("{} <&- >&- 2>&-", {"hold seat-2 --ttl 5": 3, "log verify": 3}),
}


@pytest.mark.real_time
@pytest.mark.parametrize("stream", STREAMS)
def test_f44_streams_that_cannot_be_used_end_in_an_exit_code(
    stream: str, application: ReservationApplication, database_path: Path, tmp_path: Path
) -> None:
    """And nothing that was printed is in the database, which would else get a low number."""
    application.hold("seat-1", 60)
    application.stop()
    form, expected = STREAMS[stream]
    codes, new = tmp_path / "codes", tmp_path / "new"
    lines = [form.format(" ".join([*COMMAND, words.format(new=new)])) for words in expected]
    script = "\n".join(f"{line}; echo ${{PIPESTATUS[0]}} >> {codes}" for line in lines)
    environment = {**os.environ, "RESERVATION_DATABASE": str(database_path)}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, env=environment, stdin=subprocess.DEVNULL
    )
    assert b"Traceback" not in done.stderr + done.stdout
    assert b"Exception" not in done.stderr + done.stdout
    found = [int(code) for code in codes.read_text().split()]
    assert dict(zip(expected, found, strict=True)) == expected
    assert CliRunner().invoke(main, ["log", "verify"], env=environment).exit_code == 0


@pytest.mark.real_time
def test_f44_an_interrupted_command_ends_in_a_sentence(
    application: ReservationApplication, database_path: Path
) -> None:
    application.hold("seat-1", 60)
    command = [*COMMAND, "events", "--follow", "--database", str(database_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "Held" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said.strip()) == (130, "reservation-expiry: interrupted")


@pytest.mark.real_time
@pytest.mark.parametrize("locale", ["POSIX", "en_US.ISO-8859-1"])
def test_f77_names_are_utf8_in_every_locale(locale: str, tmp_path: Path) -> None:
    environment = {
        "LC_ALL": locale,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "RESERVATION_DATABASE": "d\u00f6.db".encode(),
        "PATH": os.environ["PATH"],
    }
    environment["PYTHONPATH"] = os.getcwd()
    for words in (
        ["serve", "--check", "--port", str(free_port())],
        ["serve", "--check", "--port", str(free_port()), "--database", "\u00f6.db"],
    ):
        done = subprocess.run(
            [*COMMAND, *words], capture_output=True, cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "\u00f6.db: will be created" in done.stdout.decode()
