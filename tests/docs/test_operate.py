"""The examples for operators work as they stand: nginx in front of a real server."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.clients import connections, exchange, request_head
from tests.support.server import Server, free_port, wait_for

pytestmark = pytest.mark.real_time

EXAMPLE = Path(__file__).parents[2] / "docs" / "operate" / "nginx.conf"
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


def find_nginx() -> str:
    found = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        if os.environ.get("CI"):
            raise FileNotFoundError("nginx is not installed (Debian: apt-get install nginx-light)")
        pytest.skip("NOT TESTED: nginx is not installed (Debian: apt-get install nginx-light)")
    return found


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    """A server, and the port of nginx in front of it."""
    nginx, folder = find_nginx(), tmp_path_factory.mktemp("nginx")
    server = Server(folder).start()
    port = free_port()
    example = EXAMPLE.read_text()
    assert "127.0.0.1:8787" in example
    assert "listen 80;" in example
    example = example.replace("127.0.0.1:8787", f"127.0.0.1:{server.port}")
    example = example.replace("listen 80;", f"listen 127.0.0.1:{port};")
    (folder / "example.conf").write_text(example)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(lambda: _listens(port), 10)
        yield server, port
    finally:
        process.terminate()
        process.wait(10)
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
