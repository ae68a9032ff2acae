"""The wheel is whole: what is built from this tree works where the tree is not.

Nothing is fetched: wheels are built with this environment's setuptools, and the fresh
environment finds the dependencies in this one's folder, from which Python takes no `.pth`
file there, so that the editable installation of the tree is not found.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.support.server import Server
from tools.make_dist import build

ROOT = Path(__file__).parents[2]
PACKAGE = "reservation_expiry"
NOT_COPIED = (".*", "__pycache__", "*.egg-info", "build", "dist", "data", "tests", "benchmarks")
COMMITTED_AT = 1_790_000_000
VERSION = "0.2.0"

VERIFY = """
import sys
from pathlib import Path

from reservation_expiry.infrastructure.replay.parallel import verify_with_all_cores
from reservation_expiry.infrastructure.stores.store import open_store

if __name__ == "__main__":
    store = open_store(Path(sys.argv[1]))
    report = verify_with_all_cores(store, processes=3)
    print(report.events, len(report.differences))
    store.close()
"""


def package_folders() -> dict[str, Path]:
    """{package: its folder}, as setup.cfg lists them."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["package_dir"].split("\n")
    roots = dict(re.split(r"\s*=\s*", line) for line in lines if line.strip())
    found = {}
    for package in setup["options"]["packages"].split():
        root = max((root for root in roots if f"{package}.".startswith(f"{root}.")), key=len)
        found[package] = (
            ROOT / roots[root] / package.removeprefix(root).strip(".").replace(".", "/")
        )
    return found


def test_setup_cfg_lists_every_folder_with_python_files() -> None:
    folders = package_folders()
    listed = set(folders.values())
    rooms = {folder for folder in listed if folder.parent not in listed}
    present = {path.parent for room in rooms for path in room.rglob("*.py")}
    missing = sorted(str(folder.relative_to(ROOT)) for folder in present - listed)
    assert not missing, f"setup.cfg lists no package for {', '.join(missing)}"
    for package, folder in folders.items():
        assert (folder / "__init__.py").is_file(), f"{package} has no {folder}/__init__.py"


def build_copy(folder: Path) -> dict[str, Path]:
    """{name: file} of what is built in a copy of the tree, which setuptools writes into."""
    shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))
    return {file.name: file for file in build(folder / "tree", folder / "dist", COMMITTED_AT)}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_copy(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built: dict[str, Path]) -> Path:
    return built[f"reservation_expiry-{VERSION}-py3-none-any.whl"]


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the tree, with an environment `venv` that has the wheel."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (own,) = venv.glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    _pip("--python", str(venv / "bin/python"), "install", "--no-deps", "--no-index", str(wheel))
    return folder


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def run(folder: Path, program: str, *words: str) -> str:
    """What a program of the environment prints, run in `folder` without the tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(folder / "venv/bin" / program), *words]
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.real_time
def test_the_wheel_has_one_package_at_the_top(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {PACKAGE}
    assert any(name.endswith("/LICENSE") for name in names)


@pytest.mark.real_time
def test_the_wheel_has_every_file_of_the_rooms_templates_too(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    expected = {
        f"{package.replace('.', '/')}/{path.relative_to(folder)}"
        for package, folder in package_folders().items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{PACKAGE}/py.typed" in expected
    assert {name for name in names if ".dist-info/" not in name} == expected


@pytest.mark.real_time
def test_both_projects_are_built_and_the_same_bytes_each_time(
    built: dict[str, Path], tmp_path: Path
) -> None:
    umask = os.umask(0o077)
    try:
        again = build_copy(tmp_path)
    finally:
        os.umask(umask)
    assert sorted(again) == [
        f"reservation_client-{VERSION}-py3-none-any.whl",
        f"reservation_client-{VERSION}.tar.gz",
        f"reservation_expiry-{VERSION}-py3-none-any.whl",
        f"reservation_expiry-{VERSION}.tar.gz",
    ]
    for name, file in again.items():
        assert file.read_bytes() == built[name].read_bytes(), name


@pytest.mark.real_time
def test_the_package_is_the_wheels_and_not_the_trees(elsewhere: Path) -> None:
    code = f"import {PACKAGE}.infrastructure.application as found; print(found.__file__)"
    assert Path(run(elsewhere, "python", "-c", code)).is_relative_to(elsewhere)


@pytest.mark.real_time
def test_the_readmes_program_runs_there(elsewhere: Path) -> None:
    (program, expected) = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )[0]
    (elsewhere / "program.py").write_text(program)
    assert run(elsewhere, "python", "program.py") == expected


@pytest.mark.real_time
def test_serve_answers_there_and_its_log_is_verified_by_several_processes(elsewhere: Path) -> None:
    command = [str(elsewhere / "venv/bin/reservation-expiry")]
    server = Server(elsewhere, command=command, database=elsewhere / "served.db")
    try:
        held = server.start().hold("seat-1", 60)
        assert held["status"] == "held"
        assert server.state("seat-1") == held
        assert "openapi" in server.get("/openapi.json").json()
        assert server.get("/dashboard").status == 200
        assert "reservation_expiry_holds_total 1.0" in server.get("/metrics").body.decode()
        assert server.stop() == 0
    finally:
        server.ensure_gone()
    (elsewhere / "verify.py").write_text(VERIFY)
    assert run(elsewhere, "python", "verify.py", str(server.database)) == "2 0\n"
    words = ("--database", str(server.database))
    assert "2 events" in run(elsewhere, "reservation-expiry", "log", "verify", *words)
    assert "fsync" in run(elsewhere, "reservation-expiry", "doctor", *words)
    assert run(elsewhere, "reservation-expiry", "--version").split()[-1] == VERSION


def test_the_changelog_begins_with_the_version_that_is_built() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    client = tomllib.loads((ROOT / "client/pyproject.toml").read_text())
    assert setup["metadata"]["version"] == client["project"]["version"] == VERSION
    newest = re.findall(r"^## (\S+), \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest[0] == VERSION
