"""The picture in docs/architecture.md is the house as the walls have it.

A line of the picture is a floor: its cells stand beside each other. A cell begins with the
name of a room or wing, with a slash if that is a folder.
"""

import re
from pathlib import Path

from tests.domain.test_rooms import FORBIDDEN_ROOMS, FRONT_DOOR, MAY_IMPORT, ROOMS, TOP, wing_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PICTURE = re.findall(r"```\n( ┌.*?)```", PAGE, re.DOTALL)[0]
Floor = dict[str, str]
"""{name, as it is written: the rest of its cell}"""


def floors() -> list[Floor]:
    """From the top to the bottom."""
    lines = [line for line in PICTURE.splitlines() if line.startswith(" │")]
    cells = [[cell.strip() for cell in line.strip(" │").split("│")] for line in lines]
    return [dict(cell.split(maxsplit=1) for cell in floor) for floor in cells]


def names(floor: Floor) -> set[str]:
    return {name.rstrip("/") for name in floor}


def test_the_rooms_of_the_picture_are_the_rooms_from_the_right_to_the_left() -> None:
    rooms = [floor for floor in floors() if names(floor) <= {*ROOMS, FRONT_DOOR}]
    assert [names(floor) for floor in rooms] == [{FRONT_DOOR}, {"api"}, {"domain"}]
    assert "─ infrastructure/ ─" in PICTURE
    order = ["api", "infrastructure", "domain"]
    for number, room in enumerate(order):
        assert FORBIDDEN_ROOMS[room] == set(order[:number])


def test_the_arrows_between_wings_are_those_that_the_walls_allow() -> None:
    wings = [names(floor) for floor in floors() if not names(floor) <= {*ROOMS, FRONT_DOOR}]
    forbidden = set(re.findall(r"(\w+)/? .*?must not import (\w+)", PICTURE))
    drawn = {
        wing: {below for floor in wings[number + 1 :] for below in floor}
        - {other for name, other in forbidden if name == wing}
        for number, floor in enumerate(wings)
        for wing in floor
    }
    assert drawn == MAY_IMPORT


def test_each_wing_is_a_folder_or_modules_that_are_there() -> None:
    folders = {path.parent.name for path in ROOT.glob("infrastructure/*/__init__.py")}
    found = set()
    for floor in floors():
        for name, rest in floor.items():
            if name.endswith("/"):
                assert any((ROOT / room / name).is_dir() for room in ("", "infrastructure")), name
                found.add(name.rstrip("/"))
                continue
            modules = re.findall(r"(\w+)\.py", rest)
            assert modules, f"{name} names no modules"
            for module in modules:
                assert (ROOT / "infrastructure" / f"{module}.py").is_file(), module
                assert wing_of(f"infrastructure.{module}") == name, module
    assert folders == found - {*ROOMS, FRONT_DOOR}
    assert TOP.keys() <= {name for floor in floors() for name in floor}


def test_every_module_that_a_decision_names_is_there() -> None:
    present = {path.name for room in (*ROOMS, FRONT_DOOR) for path in (ROOT / room).rglob("*.py")}
    named = set(re.findall(r"(\w+\.py)\b", PAGE))
    assert named - present == {"test_rooms.py", "test_architecture.py"}
