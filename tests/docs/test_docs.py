"""The documents are true: what they show is run, what they name is there."""

import asyncio
import json
import re
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from reservation_expiry.api.worker import read_worker
from reservation_expiry.infrastructure.event_mapper import EVENT_TYPES, EventMapper, EventType
from tests.support.logs import verified
from tests.support.objects import World
from tests.support.server import Server

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]


def document(name: str) -> str:
    return (ROOT / name).read_text()


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)


@pytest.mark.real_time
def test_the_readmes_curl_session_prints_what_it_says(make_server) -> None:
    (session,) = re.findall(r"```console\n(.*?)```", document("README.md"), re.DOTALL)
    server = make_server().start()
    for command, expected in re.findall(r"\$ (.*)\n([^$].*)\n", session):
        command = command.replace("localhost:8787", f"127.0.0.1:{server.port}")
        printed = subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout
        assert without_numbers(printed) == without_numbers(expected)


@pytest.mark.real_time
def test_the_shop_sells_holds_refuses_and_refunds_as_its_page_says(
    make_server, capsys: pytest.CaptureFixture[str]
) -> None:
    page = document("docs/shop.md")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"It prints\n\n```\n(.*?)```", page, re.DOTALL)
    server = make_server().start()
    names = {"URL": server.url, "pay": lambda seconds=0.0: time.sleep(seconds)}
    exec(compile(program, "docs/shop.md", "exec"), names)
    assert capsys.readouterr().out == printed
    assert verified(server.database).found == 0


@pytest.mark.real_time
@pytest.mark.parametrize("page", ["README.md", "docs/schedules.md"])
def test_the_program_prints_what_it_says_in(page: str, tmp_path: Path) -> None:
    ((program, expected),) = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```", document(page), re.DOTALL
    )
    (tmp_path / "program.py").write_text(program)
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == (expected, 0), ran.stderr


@pytest.mark.real_time
def test_the_alarm_pages_example_does_what_it_says(tmp_path: Path) -> None:
    page = document("docs/alarms.md")
    (example,) = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    (session,) = re.findall(r"```\n(\$ reservation-expiry.*?)\n```", page, re.DOTALL)
    (tmp_path / "tea.py").write_text(example)
    server = Server(tmp_path, serves=("worker", str(tmp_path / "tea.py"))).start()
    try:
        for part in session.split("\n$ ")[1:]:
            command, _, expected = part.partition("\n")
            command = command.replace("localhost:8790", f"127.0.0.1:{server.port}")
            printed = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            assert printed.stdout == expected
    finally:
        server.ensure_gone()


@pytest.mark.real_time
def test_the_schedule_pages_session_prints_what_it_says(make_server) -> None:
    page = document("docs/schedules.md")
    (session,) = re.findall(r"```\n(\$ reservation-expiry.*?)\n```", page, re.DOTALL)
    server = make_server().start()
    command, _, expected = session.split("\n$ ")[1].partition("\n")
    command = command.replace("localhost:8791", f"127.0.0.1:{server.port}")
    printed = subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout
    assert printed == expected


def test_the_agent_example_reminds_reports_and_polls(tmp_path: Path) -> None:
    worker = read_worker(ROOT / "docs" / "examples" / "agent.py").run()

    async def story() -> None:
        async with World(tmp_path / "agent.db", worker.classes["Agent"]) as world:
            agent, start = world.stub("Agent", "alice"), world.clock.now_ms()
            await agent.begin(start)
            for _ in range(12):  # six minutes, half a minute at a time
                await world.advance(30_000)
            found = await agent.diary()
            ran = [(entry["what"], entry["plannedFor"] - start) for entry in found["diary"]]
            polls = [("poll", 30_000 * number) for number in range(1, 13)]
            assert sorted(ran) == sorted([*polls, ("reminder", 300_000)])
            assert found["planned"].keys() == {"poll", "report"}
            await world.advance(found["planned"]["report"] - world.clock.now_ms())
            assert (await agent.diary())["diary"][-1]["what"] in ("report", "poll")
            assert "report" in {entry["what"] for entry in (await agent.diary())["diary"]}

    asyncio.run(story())


def test_the_readmes_make_targets_are_there() -> None:
    makefile = document("Makefile")
    for target in re.findall(r"^make (\w+)", document("README.md"), re.MULTILINE):
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target


def test_make_lists_every_target_with_a_line() -> None:
    targets = set(re.findall(r"^([a-z-]+):", document("Makefile"), re.MULTILINE))
    listed = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True).stdout
    assert targets == set(re.findall(r"^  make ([a-z-]+) ", listed, re.MULTILINE))


def test_ci_runs_what_the_readme_tells_a_newcomer() -> None:
    assert "make test" in document(".ci/run")


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda t: t.topic)
def test_the_events_page_describes(event_type: EventType) -> None:
    page = document("docs/events.md")
    section = page.split(f"## {event_type.topic}\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"```json\n(.*?)\n```", section, re.DOTALL)
    event = EventMapper().decode("reservation/abc", 1, event_type.topic, example.encode())
    own_fields = [f.name for f in fields(event)][2:]
    assert list(json.loads(example)) == own_fields
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == own_fields


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere_in(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_test_that_the_guarantees_name_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", document("docs/guarantees.md"))
    assert named
    for path, name in named:
        source = document(path)
        assert name == "" or f"def {name}(" in source or f"class {name}" in source, (path, name)


def test_every_module_that_the_architecture_names_is_there() -> None:
    for path in re.findall(
        r"\b((?:api|domain|infrastructure)/[\w/]+\.py)", document("docs/architecture.md")
    ):
        assert (ROOT / path).exists(), path
