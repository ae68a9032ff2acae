"""What the command line makes of services that are none, or of somebody else's."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reservation_expiry.api.client import ServiceClient, ServiceRefused, ServiceUnreachable

TOKEN = "rxt_abcdefgh_" + "a2b3" * 8


class Site(ThreadingHTTPServer):
    """Answers everything with one answer, and keeps what it was asked."""

    def __init__(self, status: int, body: bytes, **headers: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.body, self.headers = status, body, headers
        self.asked: list[tuple[str, str | None]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site() -> Iterator[MakeSite]:
    sites: list[Site] = []

    def make(status: int, body: bytes, **headers: str) -> Site:
        site = Site(status, body, **headers)
        sites.append(site)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        return site

    yield make
    for site in sites:
        site.shutdown()
        site.server_close()


def test_a_token_follows_no_redirect(make_site: MakeSite) -> None:
    elsewhere = make_site(200, b"{}")
    site = make_site(302, b"", Location=elsewhere.url + "/whoami")
    with ServiceClient(site.url, TOKEN) as client, pytest.raises(ServiceRefused, match="302"):
        client.ask("GET", "whoami")
    assert site.asked == [("/whoami", f"Bearer {TOKEN}")]
    assert elsewhere.asked == []


def test_a_token_is_sent_to_no_proxy(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, site = make_site(200, b"{}"), make_site(200, b"{}")
    monkeypatch.setenv("http_proxy", proxy.url)
    with ServiceClient(site.url, TOKEN) as client:
        assert client.ask("GET", "whoami") == {}
    assert proxy.asked == []


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[" * 100_000, b"[]", b"7"])
def test_what_answers_otherwise_is_no_service(make_site: MakeSite, body: bytes) -> None:
    client = ServiceClient(make_site(200, body).url)
    with client, pytest.raises(ServiceUnreachable, match="not as this service does"):
        client.ask("GET", "whoami")


def test_an_answer_without_what_was_asked_for_is_no_services(make_site: MakeSite) -> None:
    client = ServiceClient(make_site(200, b'{"evens":[]}').url)
    with client, pytest.raises(ServiceUnreachable, match="not as this service does"):
        client.ask("GET", "events", member="events")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"detail":"So it is."}', "the service answers 503: So it is."),
        (b'{"error":"No."}', "the service answers 503: No."),
        (b"<html>", "the service answers 503"),
        (b'{"detail":{}}', "the service answers 503"),
    ],
)
def test_a_refusal_is_told_in_the_services_words(
    make_site: MakeSite, body: bytes, said: str
) -> None:
    client = ServiceClient(make_site(503, body).url)
    with client, pytest.raises(ServiceRefused) as refused:
        client.ask("GET", "whoami")
    assert (str(refused.value), refused.value.status) == (said, 503)


def test_names_and_parameters_are_written_as_one_segment_and_one_value(
    make_site: MakeSite,
) -> None:
    site = make_site(200, b"{}")
    with ServiceClient(site.url + "/behind/") as client:
        client.ask("GET", "schedules", "a/b ü?", query={"after": "x&y=z", "limit": None})
    assert site.asked == [("/behind/schedules/a%2Fb%20%C3%BC%3F?after=x%26y%3Dz", None)]
