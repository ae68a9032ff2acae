"""Replays the recorded HTTP contract (contract.jsonl) against a running server.

    python -m tests.contract.replayer --base-url http://127.0.0.1:8787

The server must start with an empty store: each case owns its reservation ids and nothing
is cleaned up. An answer must have the recorded bytes: compact JSON, keys in the recorded
order, `true` no `1` and 5000 no 5000.0. Where the original crashed, the answer that its
code meant to give counts (`intended`). Of what the HTTP server decides rather than the
service (`platform`), the cases that ours answers in other words are left out unless asked
for (ANSWERED_OTHERWISE).
"""

import argparse
import base64
import json
import re
import socket
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CONTRACT = Path(__file__).with_name("contract.jsonl")
TIMEOUT_SECONDS = 20.0  # for each step of one exchange
CLOCK_SLACK_MS = 1_000  # between the server's clock and ours
SHOWN_BYTES = 300  # of a wrong body

STEP_KEYS = {"request", "response", "runtime_fault", "intended", "wait_ms", "wait_until"}
REQUEST_KEYS = {"method", "headers", "template", "chunked", "version", "no_host", "no_length"}
REQUEST_KEYS |= {key + form for key in ("path", "body") for form in ("", "_b64", "_gen")}
RESPONSE_KEYS = {"status", "content_type", "json", "text", "note"}

# Malformed requests, unknown methods and odd hosts: refused here, too, but for LINK, which is
# a method like any other, and with other status codes or texts.
# fmt: off
ANSWERED_OTHERWISE = frozenset((
    "id-backtick", "id-lt", "id-raw-latin1", "id-raw-space", "id-raw-tab", "method-odd-FOO",
    "method-odd-get", "method-odd-Post", "method-odd-LINK", "method-connect",
    "method-options-star", "plat-http20-line", "plat-no-host", "plat-bad-host", "plat-host-pct",
    "plat-no-leading-slash", "plat-empty-path", "plat-only-query", "plat-long-path-70000",
    "plat-long-path-140000", "plat-bad-length", "plat-neg-length", "plat-dup-length",
    "plat-length-and-chunked", "plat-host-other", "plat-header-space", "plat-garbage-version",
))
# fmt: on

Case = dict[str, Any]
Address = tuple[str, int]

Names = dict[str, int]
"""Instants that a case has named so far, in Unix milliseconds: {"created1": ...}."""


@dataclass(frozen=True)
class Answer:
    status: int
    content_type: str | None
    body: bytes


class NoAnswer(Exception):
    """The connection ended, or time ran out, before an answer had come."""


class Mismatch(Exception):
    """The recorded answer cannot be had from the one that came; the text says why."""


def load(only: str = "", *, slow: bool = True, platform: bool = False) -> list[Case]:
    """The cases whose id contains `only`. Raises ValueError for a key of unknown meaning."""
    cases = [json.loads(line) for line in CONTRACT.read_bytes().splitlines()]
    for case in cases:
        _refuse_unknown_keys(case)
    return [
        case
        for case in cases
        if only in case["id"]
        and (slow or not case.get("slow"))
        and (platform or case["id"] not in ANSWERED_OTHERWISE)
    ]


def replay(cases: Iterable[Case], address: Address) -> dict[str, list[str]]:
    """What is wrong with each case, by its id.

    Slow cases, which wait for alarms, do so side by side while the others run.
    """
    quick, slow = [], []
    for case in cases:
        (slow if case.get("slow") else quick).append(case)
    with ThreadPoolExecutor(len(slow) + 1) as pool:
        waiting = {case["id"]: pool.submit(replay_case, case, address) for case in slow}
        found = {case["id"]: replay_case(case, address) for case in quick}
        return found | {case_id: future.result() for case_id, future in waiting.items()}


def replay_case(case: Case, address: Address) -> list[str]:
    """What is wrong with it. A step that needs what an earlier one did not give ends it."""
    names: Names = {}
    found: list[str] = []
    for number, step in enumerate(case["steps"]):
        request = step["request"]
        where = f"step {number} {request['method']} {request.get('path', '...')}"
        try:
            _wait(step, names)
            found += [f"{where}: {wrong}" for wrong in replay_step(step, address, names)]
        except (Mismatch, NoAnswer) as error:
            return [*found, f"{where}: {error}"]
    return found


def replay_step(step: dict[str, Any], address: Address, names: Names) -> list[str]:
    """What is wrong with the answer. Raises NoAnswer, or Mismatch for an unknown name."""
    request = step["request"]
    sent = message(request, address, names)
    sent_ms = _now_ms()
    answer = exchange(address, sent, request["method"])
    around = range(sent_ms - CLOCK_SLACK_MS, _now_ms() + CLOCK_SLACK_MS + 1)
    return compare(step.get("intended", step["response"]), answer, names, around)


def compare(recorded: dict[str, Any], answer: Answer, names: Names, around: range) -> list[str]:
    """How an answer differs from the recorded one; adds to `names` what that names first.

    `around` has the instants (ms) that may be the current time of the answer.
    """
    found = []
    if answer.status != recorded["status"]:
        found.append(f"status {answer.status}, not {recorded['status']}")
    if answer.content_type != recorded["content_type"]:
        found.append(f"content type {answer.content_type}, not {recorded['content_type']}")
    try:
        expected = _expected_body(recorded, answer.body, names, around)
    except Mismatch as mismatch:
        return [*found, f"body {answer.body[:SHOWN_BYTES]!r}: {mismatch}"]
    if answer.body != expected:
        found.append(f"body {answer.body[:SHOWN_BYTES]!r}, not {expected[:SHOWN_BYTES]!r}")
    return found


def _expected_body(recorded: dict[str, Any], body: bytes, names: Names, around: range) -> bytes:
    if "text" in recorded:
        return recorded["text"].encode()
    try:
        found = json.loads(body)
    except ValueError:
        raise Mismatch("that is not JSON") from None
    concrete = _concrete(recorded["json"], found, names, around)
    return json.dumps(concrete, separators=(",", ":"), ensure_ascii=False).encode()


def _concrete(recorded: Any, found: Any, names: Names, around: range) -> Any:
    """The recorded value with each symbol replaced by the instant it stands for."""
    if isinstance(recorded, dict):
        members = found if isinstance(found, dict) else {}
        return {
            key: _concrete(value, members.get(key), names, around)
            for key, value in recorded.items()
        }
    if isinstance(recorded, str) and recorded.startswith("$"):
        return _instant(recorded.removeprefix("$"), found, names, around)
    return recorded


def _instant(symbol: str, found: Any, names: Names, around: range) -> int:
    """A new name stands for the current time, a range for any instant from its first to
    its last, everything else for exactly one."""
    if symbol.startswith("range:"):
        _, first, last = symbol.split(":")
        return _one_of(range(evaluate(first, names), evaluate(last, names) + 1), found)
    if symbol.isidentifier() and symbol not in names:
        names[symbol] = _one_of(around, found)
    return evaluate(symbol, names)


def _one_of(instants: range, found: Any) -> int:
    if type(found) is not int or found not in instants:
        raise Mismatch(f"{found!r} is no integer from {instants[0]} to {instants[-1]}")
    return found


def evaluate(expression: str, names: Names) -> int:
    """ "created1+30000" in milliseconds. Raises Mismatch for a name that nothing has given."""
    try:
        return sum(int(t) if t.isdecimal() else names[t] for t in expression.split("+"))
    except KeyError as error:
        raise Mismatch(f"no answer has given {error.args[0]}") from None


def exchange(address: Address, sent: bytes, method: str = "GET") -> Answer:
    """Sends the bytes as they are, on a connection of their own, and reads one answer.

    Raises NoAnswer.
    """
    try:
        with socket.create_connection(address, TIMEOUT_SECONDS) as connection:
            with suppress(OSError):  # it may answer and hang up before it has read everything
                connection.sendall(sent)
            response = HTTPResponse(connection, method=method)
            response.begin()
            return Answer(response.status, response.getheader("Content-Type"), response.read())
    except (OSError, HTTPException) as error:
        raise NoAnswer(f"no answer: {error!r}") from error


def message(request: dict[str, Any], address: Address, names: Names) -> bytes:
    """The bytes of a recorded request. Raises Mismatch for a name that nothing has given."""
    body = _bytes_of(request, "body", names)
    words = (
        request["method"].encode(),
        _bytes_of(request, "path", names) or b"",
        request.get("version", "HTTP/1.1").encode(),
    )
    headers = [*_own_headers(request, body, address), *request["headers"]]
    lines = [b" ".join(words), *(f"{name}: {value}".encode() for name, value in headers)]
    if body is not None and "chunked" in request:
        body = chunked(body, request["chunked"])
    return b"\r\n".join([*lines, b"", body or b""])


def _own_headers(
    request: dict[str, Any], body: bytes | None, address: Address
) -> list[tuple[str, str]]:
    """The headers that every request needs, those left out that the case sets itself."""
    own = {"Connection": "close"}
    if "no_host" not in request:
        own["Host"] = "{}:{}".format(*address)
    if "chunked" in request:
        own["Transfer-Encoding"] = "chunked"
    elif body is not None and "no_length" not in request:
        own["Content-Length"] = str(len(body))
    given = {name.lower() for name, _ in request["headers"]}
    return [(name, value) for name, value in own.items() if name.lower() not in given]


def _bytes_of(request: dict[str, Any], key: str, names: Names) -> bytes | None:
    """A path or body: written out, in base64, or so many times the same thing."""
    if f"{key}_b64" in request:
        return base64.b64decode(request[f"{key}_b64"])
    if f"{key}_gen" in request:
        made = request[f"{key}_gen"]
        return (made["prefix"] + made["repeat"] * made["count"] + made["suffix"]).encode()
    text = request.get(key)
    if text is not None and request.get("template"):
        text = re.sub(r"\$\{(.*?)\}", lambda found: str(evaluate(found[1], names)), text)
    return None if text is None else text.encode("utf-8", "surrogatepass")


def chunked(body: bytes, size: int) -> bytes:
    """The body in chunked transfer coding, with chunks of `size` bytes."""
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])


def address_of(base_url: str) -> Address:
    """Raises ValueError, which argparse reports, for what is not http://host:port."""
    url = urlsplit(base_url)
    if url.scheme != "http" or not url.hostname or url.path not in ("", "/"):
        raise ValueError(f"{base_url!r} is not like http://127.0.0.1:8787")
    return url.hostname, url.port or 80


def _wait(step: dict[str, Any], names: Names) -> None:
    time.sleep(step.get("wait_ms", 0) / 1000)
    if "wait_until" in step:
        time.sleep(max(0, evaluate(step["wait_until"], names) - _now_ms()) / 1000)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _refuse_unknown_keys(case: Case) -> None:
    """A part of a case that nobody looks at would pass unseen."""
    for step in case["steps"]:
        answers = [step["response"], step.get("intended", {})]
        unknown = step.keys() - STEP_KEYS | step["request"].keys() - REQUEST_KEYS
        unknown |= {key for answer in answers for key in answer.keys() - RESPONSE_KEYS}
        if unknown:
            raise ValueError(f"{case['id']} has {sorted(unknown)}, which says nothing to us")


def main(arguments: list[str] | None = None) -> int:
    """Prints a line for each mismatch and a count. Returns 1 if there is any mismatch."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.replayer")
    parser.add_argument("--base-url", required=True, type=address_of, metavar="http://HOST:PORT")
    parser.add_argument("--only", default="", metavar="SUBSTR", help="cases with this in their id")
    parser.add_argument("--skip-slow", action="store_true", help="wait for no real alarm")
    parser.add_argument(
        "--platform", action="store_true", help="those that we answer otherwise, too"
    )
    chosen = parser.parse_args(arguments)
    cases = load(chosen.only, slow=not chosen.skip_slow, platform=chosen.platform)
    if not cases:
        parser.error("there is no such case")
    found = replay(cases, chosen.base_url)
    for case_id, mismatches in found.items():
        for mismatch in mismatches:
            print(f"{case_id}: {mismatch}")
    failed = sum(map(bool, found.values()))
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
