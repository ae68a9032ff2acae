"""What the rooms import is what setup.cfg declares, no less and no more."""

import re
import sys
from configparser import ConfigParser
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.domain.test_rooms import FRONT_DOOR, OUTSIDE, ROOMS, modules

ROOT = Path(__file__).parents[2]
# The module that exists only in processes that serve people's objects.
MADE_AT_RUN_TIME = {"workers"}
# Zones, for machines that have none of their own: `zoneinfo` finds them by itself.
DATA_ALONE = {"tzdata"}


def normalised(name: str) -> str:
    """As PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def setup() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def declared() -> set[str]:
    lines = setup()["options"]["install_requires"].split("\n")
    return {normalised(re.match(r"[\w.-]+", line)[0]) for line in lines if line}


def imported() -> dict[str, str]:
    """{distribution: where it is imported}, of all that is neither ours nor Python's."""
    ours = {FRONT_DOOR, *ROOMS, *OUTSIDE, *MADE_AT_RUN_TIME, *sys.stdlib_module_names}
    distributions = packages_distributions()
    found: dict[str, str] = {}
    for module in modules():
        for package, line in module.imports():
            if package not in ours:
                for distribution in distributions.get(package, [package]):
                    found.setdefault(normalised(distribution), f"{module.path}:{line}")
    return found


def test_everything_that_is_imported_is_declared() -> None:
    missing = {name: where for name, where in imported().items() if name not in declared()}
    assert not missing


def test_nothing_is_declared_that_nothing_imports() -> None:
    assert declared() - imported().keys() == DATA_ALONE


def test_everything_that_is_declared_is_locked_with_hashes() -> None:
    locked = {
        normalised(name)
        for name in re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.M)
    }
    assert declared() <= locked


def test_there_is_the_license_that_is_declared() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.startswith("MIT License\n\nCopyright (c) The reservation-expiry authors\n")
    assert setup()["metadata"]["license"] == "MIT"
    assert setup()["metadata"]["license_files"] == "LICENSE"
