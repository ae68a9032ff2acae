"""Each benchmark scenario, tiny, so that it cannot rot. Says nothing about speed."""

import shutil
from pathlib import Path

import pytest

from benchmarks import where
from benchmarks.__main__ import SCALES, groups
from benchmarks.load import MissingTool
from benchmarks.servers import workerd_binary

ROOT = Path(__file__).parents[2]
TINY = SCALES["smoke"]
DRIVER = """#!/usr/bin/env python3
import json, sys
found = {"load": {"create": {"per_second": 9.0}, "read": {"per_second": 8.0}}}
out = open(sys.argv[sys.argv.index("--out") + 1], "w")
for peer in ("product", "bullmq"):
    print(json.dumps({"peer": peer, "cell": "load", "found": found["load"]}), file=out)
print(json.dumps({"peer": "arq", "cell": "load", "error": "it did not start"}), file=out)
"""
# Whatever else takes seconds only so that a figure is steady.
SHORT = {
    "benchmarks.alarms.LEAD_SECONDS": 1,
    "benchmarks.limits.SECONDS": 0.1,
    "benchmarks.postgres.LIMIT_SECONDS": 0.1,
    "benchmarks.scenarios.PAUSE_SECONDS": 0.0,
    "benchmarks.seen.CENSUS_EVERY_SECONDS": 0.0,
    "benchmarks.seen.LEAD_SECONDS": 0.3,
    "benchmarks.size.SETTLE_SECONDS": 0.1,
}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in SHORT.items():
        monkeypatch.setattr(name, seconds)


@pytest.mark.real_time
@pytest.mark.parametrize("name", [n for n in groups(TINY, []) if n not in ("requests", "field")])
def test_every_figure_is_measured_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_peers(monkeypatch)
    refuse_wrk(monkeypatch)
    figures = list(groups(TINY, [], before=ROOT)[name]())
    assert figures
    assert all(figure.ours for figure in figures)


@pytest.mark.real_time
@pytest.mark.parametrize("tool", ["wrk", "aiohttp"])
def test_requests_are_measured_with(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_peers(monkeypatch)
    if tool == "wrk" and shutil.which("wrk") is None:
        pytest.skip("wrk is not installed")
    if tool == "aiohttp":
        refuse_wrk(monkeypatch)
    figures = list(groups(TINY, [])["requests"]())
    assert all(figure.ours for figure in figures)
    assert all("peer missing" in figure.note for figure in figures)


def test_what_others_drivers_find_is_held_against_ours(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "driver.py").chmod(0o755)
    figures = list(groups(TINY, [], field=tmp_path)["field"]())
    assert [(f.what, f.ratio, f.verdict) for f in figures] == [
        ("creates, beside bullmq", 1.0, "MISSED"),
        ("reads of one, beside bullmq", 1.0, "MISSED"),
    ]


@pytest.mark.real_time
def test_where_the_time_goes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    where.main(seconds=0.3)
    assert "us per request" in capsys.readouterr().out


def refuse_wrk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs for no less than a second, on a core of its own; aiohttp does for less."""
    monkeypatch.setattr("benchmarks.load.shutil.which", lambda name: None)


def refuse_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests install nothing from npm; the peers' own scenario is the benchmark itself."""

    def missing() -> None:
        raise MissingTool("not in a test")

    assert callable(workerd_binary)
    monkeypatch.setattr("benchmarks.servers.workerd_binary", missing)
