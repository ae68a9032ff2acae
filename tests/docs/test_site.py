"""`make site`: every page is on it, every link of a page leads somewhere, and no browser that
reads it asks another host for anything."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.made_from_code import http_reference, settings_reference
from reservation_expiry.api.cli.serve import serve, worker
from reservation_expiry.api.openapi import document

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOADED = r"<(?:script|img|iframe|source)[^>]+src=\"([^\"]+)\"|<link[^>]+href=\"([^\"]+)\"|@import"


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Builds pages as `make site` does, which is asked how."""
    asked = ["make", "--dry-run", "site", f"BIN={Path(sys.executable).parent}"]
    steps = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (step,) = re.findall(r"^\S*python -m (sphinx .*)$", steps, re.MULTILINE)
    options = step.removesuffix(" docs build/site")
    assert options != step
    options = options.replace("build/site-pages", str(target.with_name("pages"))).split()
    return subprocess.run(
        [sys.executable, "-m", *options, source, target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site") / "html"
    built = build(DOCS, target)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return target


@pytest.mark.real_time
def test_the_site_has_every_page_without_a_warning(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    assert pages <= {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert "Holds with terms" in (site / "changelog.html").read_text()


@pytest.mark.real_time
def test_no_page_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = [one or two for one, two in re.findall(LOADED, page.read_text())]
        assert loaded
        assert not [each for each in loaded if "//" in each], page


@pytest.mark.real_time
@pytest.mark.parametrize("target", ["nowhere.md", "index.md#nowhere", "../nowhere.txt"])
def test_a_link_that_leads_nowhere_is_an_error(target: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text(f"# A page\n\n[a link]({target})\n")
    built = build(source, tmp_path / "html")
    assert built.returncode != 0
    assert "nowhere" in built.stderr


def test_the_pages_made_from_the_code_have_every_route_and_every_setting() -> None:
    http, settings = http_reference(), settings_reference()
    for path, methods in json.loads(document())["paths"].items():
        for method in methods:
            assert f"### {method.upper()} {path}\n" in http
    for command in (serve, worker):
        for option in command.params:
            for name in option.opts if option.param_type_name == "option" else ():
                assert f"`{name}`" in settings
