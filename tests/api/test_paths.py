"""Request paths are normalised as a URL parser does it, and no trick reaches another route."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_expiry.api.http import create_app
from reservation_expiry.api.paths import NormalisedPaths, normalise

SERVICE = {"service": "reservation-expiry"}
BAD_ID = {"error": "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."}


@pytest.mark.parametrize(
    ("path", "normalised"),
    [
        ("/", "/"),
        ("/reservations/abc", "/reservations/abc"),
        ("/reservations/abc/", "/reservations/abc/"),
        ("/.", "/"),
        ("/./", "/"),
        ("/..", "/"),
        ("/../..", "/"),
        ("/../../reservations/abc", "/reservations/abc"),
        ("/./reservations/./abc", "/reservations/abc"),
        ("/x/../reservations/abc", "/reservations/abc"),
        ("/reservations/..", "/"),
        ("/reservations/../", "/"),
        ("/reservations/abc/..", "/reservations/"),
        ("/reservations/abc/../..", "/"),
        ("/reservations/abc/../xyz", "/reservations/xyz"),
        ("/reservations/abc/.", "/reservations/abc/"),
        ("/reservations/abc/./", "/reservations/abc/"),
        ("/reservations/abc/./replay-alarm", "/reservations/abc/replay-alarm"),
        ("//", "//"),
        ("///", "///"),
        ("//..", "/"),
        ("///..", "//"),
        ("/reservations//abc", "/reservations//abc"),
        ("/reservations//../abc", "/reservations/abc"),
        ("//evil/reservations/abc", "//evil/reservations/abc"),
        ("//evil/../reservations/abc", "//reservations/abc"),
        ("/\\..", "/"),
        ("\\reservations\\abc", "/reservations/abc"),
        ("/reservations\\abc", "/reservations/abc"),
        ("/reservations\\abc\\..\\xyz", "/reservations/xyz"),
        ("\\\\evil\\reservations\\abc", "//evil/reservations/abc"),
        ("/reservations/a.b", "/reservations/a.b"),
        ("/reservations/.abc", "/reservations/.abc"),
        ("/reservations/abc.", "/reservations/abc."),
        ("/reservations/...", "/reservations/..."),
        ("/reservations/%2e%2e", "/reservations/%2e%2e"),
    ],
)
def test_dot_segments_are_resolved_and_backslashes_are_slashes(path, normalised):
    assert normalise(path) == normalised


@given(st.text(alphabet="/\\.a").map(lambda rest: "/" + rest))
def test_a_normalised_path_is_absolute_has_no_dot_segment_and_stays_as_it_is(path):
    normalised = normalise(path)
    assert normalised.startswith("/")
    assert not {".", ".."} & set(normalised.split("/"))
    assert "\\" not in normalised
    assert normalise(normalised) == normalised


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/reservations/abc", "/reservations/abc"),
        ("/x/../reservations/abc", "/reservations/abc"),
        ("/reservations/a.b", "/reservations/a.b"),
        ("///", "/%2F//"),
        ("//evil/reservations/abc", "/%2F/evil/reservations/abc"),
        ("\\\\evil\\reservations\\abc", "/%2F/evil/reservations/abc"),
    ],
)
def test_the_app_inside_never_sees_an_empty_first_segment(path, seen):
    paths = []
    app = NormalisedPaths(lambda environ, _: paths.append(environ["PATH_INFO"]))
    app({"PATH_INFO": path}, None)
    assert paths == [seen]


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/reservations/..", 200, SERVICE),
        ("/\\..", 200, SERVICE),
        ("///", 400, BAD_ID),
        ("//", 400, BAD_ID),
        ("//reservations/abc", 400, BAD_ID),
        ("//evil/reservations/abc", 400, BAD_ID),
        ("//healthz", 400, BAD_ID),
        ("\\\\evil\\reservations\\abc", 400, BAD_ID),
        ("/reservations//abc", 400, BAD_ID),
        ("/reservations/abc/.", 400, BAD_ID),
        ("/reservations/abc/", 400, BAD_ID),
        ("/healthz/.", 400, BAD_ID),
        ("/healthz/", 400, BAD_ID),
        ("/x/../healthz", 200, {"status": "ok"}),
    ],
)
def test_a_path_finds_the_route_of_its_normal_form_and_is_never_redirected(
    application, path, status, body
):
    client = create_app(application).test_client()
    # The client would take what follows "//" for a host; a server hands it over as it is.
    answer = client.get("/", environ_overrides={"PATH_INFO": path})
    assert (answer.status_code, answer.json) == (status, body)


@pytest.mark.parametrize(
    "path",
    [
        "/reservations/abc",
        "/reservations\\abc",
        "\\reservations\\abc",
        "/x/../reservations/./abc",
        "/../reservations/xyz/../abc",
    ],
)
def test_every_spelling_of_a_path_holds_the_same_reservation(application, path):
    client = create_app(application).test_client()
    answer = client.post("/", environ_overrides={"PATH_INFO": path}, json={"ttlSeconds": 60})
    assert answer.status_code == 201
    assert answer.json["reservationId"] == "abc"
    assert application.get("abc").status == "held"
