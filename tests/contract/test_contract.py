"""A real server gives the recorded contract's answers, byte for byte.

All cases are replayed once, the slow ones side by side; each then has a test of its own,
to say which went wrong. Left out are a few that record how another HTTP server words what it
refuses (`python -m tests.contract.replayer --platform` shows them).
The last tests show that a wrong answer would be seen.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import make_server

import pytest

from tests.contract.replayer import (
    Answer,
    Mismatch,
    address_of,
    compare,
    evaluate,
    load,
    main,
    replay,
)
from tests.support.server import Server, free_port

CASES = load()

NOW_MS = 1_800_000_000_000
AROUND = range(NOW_MS - 1, NOW_MS + 2)
RECORDED = {
    "status": 201,
    "content_type": "application/json",
    "json": {
        "status": "held",
        "createdAt": "$created1",
        "expiresAt": "$created1+5000",
        "count": 1,
        "changed": True,
    },
}
RIGHT = {
    "status": "held",
    "createdAt": NOW_MS,
    "expiresAt": NOW_MS + 5_000,
    "count": 1,
    "changed": True,
}


@pytest.fixture(scope="module")
def server(
    store: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Server]:
    on_postgres = store == "postgres"
    database = request.getfixturevalue("postgres").address("contract") if on_postgres else None
    server = Server(tmp_path_factory.mktemp("contract"), database=database)
    try:
        yield server.start()
    finally:
        server.ensure_gone()


@pytest.fixture(scope="module")
def mismatches(server: Server) -> dict[str, list[str]]:
    """What is wrong with each case, by its id."""
    return replay(CASES, address_of(server.url))


@pytest.mark.real_time
@pytest.mark.parametrize("case_id", [case["id"] for case in CASES])
def test_the_server_answers_as_recorded(mismatches: dict[str, list[str]], case_id: str):
    assert mismatches[case_id] == []


def test_only_what_the_http_server_decides_is_left_out():
    every = load(platform=True)
    left_out = [case for case in every if case not in CASES]
    assert len({case["id"] for case in every}) == len(every) == 357
    assert len(left_out) == 27
    assert all(case["platform"] for case in left_out)


def test_f61_encoded_forms_are_among_what_is_compared():
    encoded = {case["id"] for case in CASES if "-pct-" in case["id"]}
    assert encoded >= {"path-pct-slash", "path-pct-action", "id-pct-lower", "id-pct-hyphen"}


@pytest.mark.real_time
def test_the_command_counts_what_passed(server: Server, capsys: pytest.CaptureFixture[str]):
    assert main(["--base-url", server.url, "--only", "path-triple"]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


@pytest.mark.real_time
def test_the_command_names_what_a_wrong_server_answers(capsys: pytest.CaptureFixture[str]):
    with serving(b'{"service": "reservation-expiry"}') as base_url:
        assert main(["--base-url", base_url, "--only", "root-post-ttl"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        """root-post-ttl: step 0 POST /: body b'{"service": "reservation-expiry"}',"""
        """ not b'{"service":"reservation-expiry"}'""",
        "0 passed, 1 failed",
    ]


@contextmanager
def serving(body: bytes) -> Iterator[str]:
    """The address of a server that answers everything with this JSON."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "application/json")])
        return [body]

    with make_server("127.0.0.1", 0, app) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.real_time
def test_a_server_that_is_not_there_fails_every_case():
    found = replay(load("path-"), ("127.0.0.1", free_port()))
    assert len(found) > 20
    assert all("no answer" in wrong for (wrong,) in found.values())


@pytest.mark.parametrize(
    "arguments",
    [[], ["--base-url", "ftp://x"], ["--base-url", "http://x", "--only", "no such case"]],
)
def test_the_command_refuses_what_would_replay_nothing(arguments):
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def answer(body=None, *, status=201, content_type="application/json", raw=None) -> Answer:
    if raw is None:
        raw = json.dumps(RIGHT if body is None else body, separators=(",", ":")).encode()
    return Answer(status, content_type, raw)


def test_the_recorded_answer_is_no_mismatch_and_names_its_instant():
    names = {}
    assert compare(RECORDED, answer(), names, AROUND) == []
    assert names == {"created1": NOW_MS}


@pytest.mark.parametrize(
    "wrong",
    [
        answer(status=200),
        answer(content_type="application/json; charset=utf-8"),
        answer(content_type=None),
        answer({**RIGHT, "count": True}),
        answer({**RIGHT, "changed": 1}),
        answer({**RIGHT, "count": 1.0}),
        answer({**RIGHT, "count": "1"}),
        answer({**RIGHT, "count": None}),
        answer({**RIGHT, "status": "expired"}),
        answer({**RIGHT, "expiresAt": NOW_MS + 5_001}),
        answer({**RIGHT, "expiresAt": NOW_MS + 5_000.0}),
        answer({**RIGHT, "createdAt": NOW_MS - 2}),
        answer({**RIGHT, "createdAt": NOW_MS + 2}),
        answer({**RIGHT, "createdAt": float(NOW_MS)}),
        answer({**RIGHT, "createdAt": str(NOW_MS)}),
        answer(dict(reversed(RIGHT.items()))),
        answer({**RIGHT, "more": None}),
        answer({key: value for key, value in RIGHT.items() if key != "changed"}),
        answer([RIGHT]),
        answer(raw=json.dumps(RIGHT).encode()),
        answer(raw=json.dumps(RIGHT, separators=(",", ":")).encode() + b"\n"),
        answer(raw=b""),
        answer(raw=b"\xff"),
    ],
)
def test_a_wrong_answer_is_one_mismatch(wrong):
    assert len(compare(RECORDED, wrong, {}, AROUND)) == 1


def test_an_instant_that_has_a_name_must_be_that_one_and_not_just_near():
    (mismatch,) = compare(RECORDED, answer(), {"created1": NOW_MS - 1}, AROUND)
    assert "createdAt" in mismatch


@pytest.mark.parametrize(
    ("at", "mismatches"),
    [
        (NOW_MS + 4_999, 1),
        (NOW_MS + 5_000, 0),
        (NOW_MS + 6_500, 0),
        (NOW_MS + 6_501, 1),
        (None, 1),
        (NOW_MS + 5_000.0, 1),
    ],
)
def test_a_range_has_its_first_and_last_instant_and_none_beyond(at, mismatches):
    recorded = {**RECORDED, "json": {"expiredAt": "$range:created1+5000:created1+6500"}}
    found = compare(recorded, answer({"expiredAt": at}), {"created1": NOW_MS}, AROUND)
    assert len(found) == mismatches


def test_a_recorded_text_is_compared_byte_for_byte():
    recorded = {"status": 201, "content_type": None, "text": "é"}
    assert compare(recorded, answer(raw="é".encode(), content_type=None), {}, AROUND) == []
    assert len(compare(recorded, answer(raw=b"\xe9", content_type=None), {}, AROUND)) == 1


def test_what_nothing_has_named_cannot_be_evaluated():
    assert evaluate("created1+5000", {"created1": NOW_MS}) == NOW_MS + 5_000
    with pytest.raises(Mismatch, match="no answer has given created2"):
        evaluate("created2+5000", {"created1": NOW_MS})
