"""What `make` installs, and when: asked of make itself, which runs nothing here (`-n`)."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def steps(target: str, venv: Path) -> list[str]:
    """What `make target` would do, a line each."""
    command = ["make", "--dry-run", target, f"VENV={venv}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def installs(target: str, venv: Path) -> list[str]:
    """What it would hand to pip: the lock files, and the tree as `-e`."""
    found = []
    for step in steps(target, venv):
        if "pip install" in step:
            found += re.findall(r"-r (\S+)|(-e) \.", step)
    return ["".join(each) for each in found]


def test_make_run_installs_what_running_needs(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    assert installs("run", venv) == ["requirements.lock", "-e"]
    for target in ("test", "lint", "install"):
        assert installs(target, venv) == ["requirements.lock", "-e", "requirements-dev.lock"]


def test_nothing_is_installed_again(tmp_path: Path) -> None:
    (tmp_path / ".runs").touch()
    assert installs("run", tmp_path) == []
    assert installs("test", tmp_path) == ["requirements-dev.lock"]
    (tmp_path / ".develops").touch()
    for target in ("test", "lint", "run"):
        assert installs(target, tmp_path) == []


def test_make_clean_removes_both_installations_and_no_data() -> None:
    removed = " ".join(steps("clean", Path(".venv"))).split()
    assert ".venv" in removed
    assert "data" not in removed


def pins(lock: str) -> set[str]:
    return set(re.findall(r"^[\w.-]+==[^ ]+", (ROOT / lock).read_text(), re.MULTILINE))


def test_tests_run_on_the_versions_that_are_run() -> None:
    assert pins("requirements.lock") < pins("requirements-dev.lock")
