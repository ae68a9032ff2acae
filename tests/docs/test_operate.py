"""The examples for operators work as they stand: nginx in front of a real server, a unit that
systemd takes, an image's steps."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from reservation_expiry.api.cli import main
from reservation_expiry.api.processes import KILL_AFTER_SECONDS
from tests.support.clients import connections, exchange, request_head
from tests.support.server import Server, free_port, wait_for

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
OPERATE = ROOT / "docs" / "operate"
EXAMPLE = OPERATE / "nginx.conf"
FOLLOWER = "127.0.0.2"  # an address of this machine that stands for those who follow the log
MAIN = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/example.conf;
}}
"""


def find_program(name: str, package: str) -> str:
    found = shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        missing = f"{name} is not installed (Debian: apt-get install {package})"
        if os.environ.get("CI"):
            raise FileNotFoundError(missing)
        pytest.skip(f"NOT TESTED: {missing}")
    return found


@contextmanager
def nginx_before(service: int, folder: Path) -> Iterator[int]:
    """The example on a free port, which comes back, before a service on another."""
    nginx, port = find_program("nginx", "nginx-light"), free_port()
    example = EXAMPLE.read_text()
    for ours, here in {
        "127.0.0.1:8787": f"127.0.0.1:{service}",
        "listen 80;": f"listen 127.0.0.1:{port};",
        "allow 10.0.0.0/8;": f"allow {FOLLOWER};",
    }.items():
        assert example.count(ours) == 1, ours
        example = example.replace(ours, here)
    (folder / "example.conf").write_text(example)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(lambda: _listens(port), 10)
        yield port
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    """A server, and the port of nginx in front of it."""
    folder = tmp_path_factory.mktemp("nginx")
    server = Server(folder).start()
    try:
        with nginx_before(server.port, folder) as port:
            yield server, port
    finally:
        server.ensure_gone()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, method: str, path: str, body: bytes = b"") -> bytes:
    head = request_head(method, path, f"Content-Length: {len(body)}", "Connection: close")
    return exchange(port, head + body)


def test_a_hold_goes_through(proxied: tuple[Server, int]):
    server, port = proxied
    answer = ask(port, "POST", "/reservations/seat-1", b'{"ttlSeconds":600}')
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert server.state("seat-1")["status"] == "held"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/events", 403),
        ("/%65vents", 403),
        ("/x/../events", 403),
        ("/reservations/seat-1/replay-alarm", 403),
        ("/reservations/seat-1/%72eplay-alarm", 403),
        ("/reservations/seat%2d1", 400),
        ("/reservations/seat-1", 200),
    ],
)
def test_f61_what_is_denied_is_denied_however_it_is_written(
    proxied: tuple[Server, int], path: str, status: int
):
    assert ask(proxied[1], "GET", path).startswith(b"HTTP/1.1 %d " % status)


def test_f58_slow_bodies_end_at_the_proxy(proxied: tuple[Server, int]):
    server, port = proxied
    head = request_head("POST", "/reservations/slow-1", "Content-Length: 100") + b"{"
    with connections(port, 30, head):  # within what one address may ask for at once
        assert server.get("/healthz").status == 200
    assert server.state("slow-1")["status"] == "missing"


def test_too_many_requests_of_one_address_are_told_429(proxied: tuple[Server, int]):
    time.sleep(2.1)  # real time is the subject: the allowance fills up again
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(proxied[1], "GET", "/healthz")[9:12], range(200)))
    assert set(found) == {b"200", b"429"}


def follow(port: int) -> socket.socket:
    """A connection of somebody who may follow the log, and has asked for it."""
    connection = socket.create_connection(("127.0.0.1", port), 10, source_address=(FOLLOWER, 0))
    connection.sendall(request_head("GET", "/events", "Accept: text/event-stream"))
    return connection


def test_the_log_is_for_those_whose_networks_are_named(proxied: tuple[Server, int]):
    with follow(proxied[1]) as connection:
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_a_stream_reaches_its_reader_while_it_goes_on(tmp_path: Path):
    with (
        socket.create_server(("127.0.0.1", 0)) as service,
        nginx_before(service.getsockname()[1], tmp_path) as port,
        follow(port) as reader,
        service.accept()[0] as upstream,
    ):
        upstream.recv(10_000)
        upstream.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for line in (b": one\n\n", b": two\n\n"):
            upstream.sendall(line)
            received = b""
            while line not in received:
                received += reader.recv(10_000)  # TimeoutError if nginx keeps it


UNIT = OPERATE / "reservation-expiry.service"
INSTALLED = "/opt/reservation-expiry/bin/reservation-expiry"
MOST_EXPOSED = 2.0  # of 10: what systemd's own judgement may say


def test_systemd_takes_the_unit_and_finds_it_little_exposed(tmp_path: Path):
    analyze = find_program("systemd-analyze", "systemd")
    unit = tmp_path / UNIT.name
    program = str(Path(sys.executable).with_name("reservation-expiry"))
    unit.write_text(UNIT.read_text().replace(INSTALLED, program))
    threshold = f"--threshold={MOST_EXPOSED * 10:.0f}"
    for words in (["verify"], ["security", "--offline=true", "--no-pager", threshold]):
        ran = subprocess.run([analyze, *words, unit], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr


def setting(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return found


def assert_serves(words: list[str], folder: Path) -> None:
    """With these words the command line would serve: it has checked everything."""
    settings = {"DATABASE": str(folder / "reservations.db"), "PORT": str(free_port())}
    environment = {f"RESERVATION_{name}": value for name, value in settings.items()}
    checked = CliRunner().invoke(main, [*words, "--check"], env=environment)
    assert checked.exit_code == 0, checked.output


def test_the_unit_starts_replaces_and_stops_the_service_as_the_service_means_it(tmp_path: Path):
    program, *words = shlex.split(setting("ExecStart"))
    assert program == INSTALLED
    assert_serves(words, tmp_path)
    assert setting("ExecReload") == "/bin/kill -HUP $MAINPID"
    assert setting("KillMode") == "mixed", "SIGTERM is the parent's, which drains the others"
    assert int(setting("TimeoutStopSec").removesuffix("s")) > KILL_AFTER_SECONDS


def test_the_image_is_made_of_what_make_dist_makes_and_serves(tmp_path: Path):
    steps = (OPERATE / "Containerfile").read_text()
    (copied,) = re.findall(r"^COPY (.*) \S+$", steps, re.MULTILINE)
    assert copied.split() == ["requirements.lock", "dist/reservation_expiry-*.whl"]
    assert "not built" in steps
    (command,) = re.findall(r"^CMD (.*)$", steps, re.MULTILINE)
    assert_serves(json.loads(command), tmp_path)
