"""Who may ask a service that has no tokens: this machine's people, and no page of others'."""

import http.server
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from reservation_expiry.api.access import Access, ForeignHost, ForeignOrigin, is_loopback
from reservation_expiry.api.requests import BadHost
from tests.support.clients import exchange, request_head
from tests.support.server import Server, free_port

Headers = list[tuple[bytes, bytes]]

OWN = Access()
NAMED = Access(["shop.example", "Tickets.Example"])
EXPOSED = Access(any_host=True)


def scope(host: bytes | None, origin: bytes | None = None, version: str = "1.1") -> dict:
    headers: Headers = [(b"accept", b"*/*")]
    if host is not None:
        headers.append((b"host", host))
    if origin is not None:
        headers.append((b"origin", origin))
    return {"headers": headers, "http_version": version}


PASSES = {
    "localhost": (OWN, scope(b"localhost:8787")),
    "a loopback address": (OWN, scope(b"127.0.0.1:8787")),
    "another loopback address": (OWN, scope(b"127.3.2.1")),
    "IPv6": (OWN, scope(b"[::1]:8787")),
    "a name below localhost": (OWN, scope(b"rx.LOCALHOST.:8787")),
    "HTTP/1.0 without a Host": (OWN, scope(None, version="1.0")),
    "its own page": (OWN, scope(b"localhost:8787", b"http://localhost:8787")),
    "a name that it was given": (NAMED, scope(b"SHOP.example:443")),
    "a page of a name that it was given": (NAMED, scope(b"localhost:1", b"https://shop.example")),
    "another's case": (NAMED, scope(b"tickets.example")),
    "any name, beyond loopback": (EXPOSED, scope(b"10.1.2.3:80")),
    "its own page, beyond loopback": (EXPOSED, scope(b"10.1.2.3:80", b"http://10.1.2.3:80")),
}
REFUSED = {
    "a name that resolves here": (OWN, scope(b"evil.example:8787"), ForeignHost),
    "an address of the network": (OWN, scope(b"10.0.0.1"), ForeignHost),
    "a name that begins like it": (OWN, scope(b"localhost.evil.example"), ForeignHost),
    "a name that ends like one": (NAMED, scope(b"notshop.example"), ForeignHost),
    "a page of elsewhere": (OWN, scope(b"localhost", b"https://evil.example"), ForeignOrigin),
    "a page of another port": (OWN, scope(b"localhost:1", b"http://localhost:2"), ForeignOrigin),
    "a page of the other name": (OWN, scope(b"localhost", b"http://127.0.0.1"), ForeignOrigin),
    "a page without an origin": (OWN, scope(b"localhost", b"null"), ForeignOrigin),
    "an empty origin": (OWN, scope(b"localhost", b""), ForeignOrigin),
    "a file": (OWN, scope(b"localhost", b"file://"), ForeignOrigin),
    "a page of elsewhere, beyond": (EXPOSED, scope(b"h", b"http://evil.example"), ForeignOrigin),
    "no Host": (OWN, scope(None), BadHost),
    "a Host that is none": (OWN, scope(b"a b"), BadHost),
}


@pytest.mark.parametrize("kind", PASSES)
def test_may_ask(kind: str) -> None:
    access, request = PASSES[kind]
    access.check(request)


@pytest.mark.parametrize("kind", REFUSED)
def test_may_not_ask(kind: str) -> None:
    access, request, error = REFUSED[kind]
    with pytest.raises(error):
        access.check(request)


@pytest.mark.parametrize(
    ("host", "is_one"),
    [("127.0.0.1", True), ("127.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False)],
)
def test_a_host_is_loopback_if_nobody_else_reaches_it(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("access")).start()
    yield server
    server.ensure_gone()


@pytest.mark.real_time
@pytest.mark.parametrize(
    "path", ["/reservations/seat-1", "/reservations", "/schedules/a/events/b", "/healthz", "/none"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_every_route_refuses_a_foreign_page(server: Server, method: str, path: str) -> None:
    head = request_head(method, path, "Origin: https://evil.example", "Content-Length: 0")
    answer = exchange(server.port, head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert b'"code":"foreign-origin"' in answer


PAGE = """<!doctype html><title>page</title><pre id=said>nothing yet</pre><script>
fetch("http://127.0.0.1:%d/reservations/seat-%s",
      {method: "POST", mode: "%s", body: '{"ttlSeconds":600}'})
  .then((answer) => answer.type + " " + answer.status, (error) => "refused")
  .then((text) => { document.getElementById("said").textContent = text; });
</script>"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    """A site of somebody else's, with what stands in `pages`."""
    (tmp_path / "pages").mkdir()
    handler = partial(QuietHandler, directory=str(tmp_path / "pages"))
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    yield site
    site.shutdown()
    site.server_close()


def page_in_a_browser(url: str, profile: Path) -> str:
    """What chromium makes of a page, its script run."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    options = [f"--user-data-dir={profile}", "--virtual-time-budget=5000", url]
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.mark.real_time
@pytest.mark.parametrize("mode", ["cors", "no-cors"])
def test_a_page_of_another_origin_in_a_browser_cannot_write(
    server: Server, elsewhere: http.server.ThreadingHTTPServer, tmp_path: Path, mode: str
) -> None:
    page = PAGE % (server.port, mode, mode)
    (tmp_path / "pages" / "page.html").write_text(page)
    found = page_in_a_browser(
        f"http://127.0.0.1:{elsewhere.server_port}/page.html", tmp_path / "profile"
    )
    assert "nothing yet" not in found, "the script has run"
    assert server.state(f"seat-{mode}")["status"] == "missing"


@pytest.mark.real_time
def test_no_other_machine_is_served_unless_somebody_says_so(tmp_path: Path) -> None:
    server = Server(tmp_path, "--host", "0.0.0.0").start(wait=False)
    assert server.process.wait(20) == 2
    said = server.err.read_text()
    assert "can be reached by other machines" in said
    assert "--insecure" in said
    exposed = Server(tmp_path, "--host", "0.0.0.0", "--insecure", port=free_port())
    try:
        assert exposed.start().hold("seat-1", 600)["status"] == "held"
    finally:
        exposed.ensure_gone()
