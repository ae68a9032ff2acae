"""A password that was written on a command line is shown nowhere, and its writer is told."""

import subprocess
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer
from tests.support.server import COMMAND, Server

SECRET = "s3cret"


def command_line_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.real_time
def test_f68_the_password_is_gone_from_ps_before_its_writer_is_told(tmp_path: Path) -> None:
    """No later than that: what Python itself needs to start nothing can shorten."""
    command = [*COMMAND, "serve", "--database", f"postgresql://u:{SECRET}@127.0.0.1:1/db"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        said = process.stderr.readline()
        assert said.startswith("reservation-expiry: a password on the command line can be read")
        assert "PGPASSFILE" in said
        assert SECRET not in command_line_of(process.pid)
        assert "postgresql://u:***@127.0.0.1:1/db" in command_line_of(process.pid)
        assert SECRET not in process.stderr.readline()  # waiting for ...
    finally:
        process.kill()
        process.communicate()


@pytest.mark.real_time
def test_f68_no_process_of_a_server_has_the_password_on_its_command_line_or_in_its_output(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.address("secrets").url.replace("@", f":{SECRET}@")
    server = Server(tmp_path, "--database", url, "--workers", "2").start()
    try:
        pids = [server.process.pid, *server.worker_pids()]
        assert len(pids) >= 3
        assert [pid for pid in pids if SECRET in command_line_of(pid)] == []
        assert server.stop() == 0
    finally:
        server.ensure_gone()
    assert SECRET not in str(server)


def test_f68_a_password_in_the_environment_is_no_reason_to_warn(tmp_path: Path) -> None:
    environment = {"RESERVATION_DATABASE": f"postgresql://u:{SECRET}@127.0.0.1:1/db"}
    done = subprocess.run(
        [*COMMAND, "list"], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert SECRET not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--database", f"host=h password={SECRET}"),
        ("list", "--database", f"postgresql://u:{SECRET}@x@h/db"),
        ("show", f"postgresql://u:{SECRET}@h/db"),
        (f"postgresql://u:{SECRET}@h/db",),
        ("backup", f"postgresql://u:{SECRET}@h/db"),
        ("copy", "--from", f"postgresql://u:{SECRET}@127.0.0.1:1/", "--to", f"u:{SECRET}@h/x"),
    ],
    ids=" ".join,
)
def test_f66_f68_no_error_repeats_a_password(words: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode in (2, 3)
    assert "cret" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
