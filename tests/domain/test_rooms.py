"""The house is tidy: who may import what, and how long things may get.

`Module` holds one source file; each rule is a function from a module to what is wrong
with it, as lines "file:line: what". The rules are tried on bad source first, so that a
green run means something.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("domain", "infrastructure", "api")
FRONT_DOOR = "reservation_expiry"  # what programs import, and where the command line begins
PACKAGE = f"{FRONT_DOOR}."
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 45

# Imports point left only: what a room may not import.
FORBIDDEN_ROOMS = {
    "domain": {"infrastructure", "api"},
    "infrastructure": {"api"},
    "api": set(),
    FRONT_DOOR: set(),
}
# The wings of infrastructure, lowest first, and what else each may import. A wing is a folder,
# or modules that stand at the top; what is not named here carries out writes.
TOP = {
    "basics": {"errors", "clock", "instants", "checksum"},
    "application": {"application", "async_reservations", "readiness", "startup", "settings"},
}
MAY_IMPORT = {
    "basics": set(),
    "machine": {"basics"},
    "stores": {"basics", "machine"},
    "writing": {"basics", "machine", "stores"},
    "alarms": {"basics", "machine", "stores", "writing"},
    "replay": {"basics", "machine", "stores", "writing"},
    "application": {"basics", "machine", "stores", "writing", "alarms", "replay"},
    "objects": {"basics", "machine", "stores", "writing", "alarms", "application"},
}
ONLY_IN = {
    "apscheduler": ("infrastructure/alarms/scheduler.py",),
    "sqlalchemy": (
        "infrastructure/alarms/",
        "infrastructure/stores/",
    ),
    "sqlite3": ("infrastructure/stores/sqlite/",),
    "psycopg": ("infrastructure/stores/postgres/",),
    "flask": ("api/",),
    "click": ("api/",),
    "uvicorn": ("api/",),
    "uvloop": ("api/",),
    "werkzeug": ("api/",),
    "rich": ("api/",),
    "prometheus_client": ("api/metrics.py",),
}
# Who asks the store they are given, and must not know which it is.
ASK_ANY_STORE = {"writing", "alarms", "replay", "application", "objects"}
STORES_INSIDES = ("infrastructure.stores.sqlite", "infrastructure.stores.postgres")
SQL_IS_IN = ("infrastructure/stores/",)
SQL = re.compile(r"\s*(SELECT|INSERT INTO|DELETE FROM|UPDATE \w+ SET|CREATE TABLE|WITH \w+ AS)\b")
# Modules of tests that are yet to be split by subject: this may only shrink.
STILL_LONG = {
    "tests/infrastructure/store_conformance.py",
    "tests/infrastructure/test_alarms.py",
    "tests/infrastructure/test_object_alarms.py",
    "tests/infrastructure/test_object_faults.py",
    "tests/infrastructure/test_objects.py",
    "tests/infrastructure/test_postgres_store.py",
}
# What stands outside the rooms, and may not be needed inside them.
OUTSIDE = {"tests", "benchmarks", "lab", "docs"}


@dataclass(frozen=True)
class Module:
    path: str  # from the project's folder
    source: str

    @property
    def room(self) -> str:
        return self.path.split("/")[0]

    @property
    def name(self) -> str:
        """Its dotted name, from the room on."""
        return self.path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    def imports(self) -> Iterator[tuple[str, int]]:
        """(top-level package or room, line) of every import, wherever in the module it stands."""
        yield from dict.fromkeys((name.split(".")[0], line) for name, line in self.names())

    def names(self) -> Iterator[tuple[str, int]]:
        """(dotted name, line) of everything imported; ours from the room on."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name.removeprefix(PACKAGE), node.lineno
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield f"{self._from(node)}.{alias.name}".removeprefix(PACKAGE), node.lineno

    def _from(self, node: ast.ImportFrom) -> str:
        """What is imported from; for a relative import, found from where this module stands."""
        folders = [*PACKAGE.rstrip(".").split("."), *self.path.split("/")[:-1]]
        kept = folders[: len(folders) - node.level + 1] if node.level else []
        return ".".join([*kept, *([node.module] if node.module else [])])


Rule = Callable[[Module], Iterator[str]]


def imports_point_left(module: Module) -> Iterator[str]:
    for package, line in module.imports():
        if package in FORBIDDEN_ROOMS[module.room] | OUTSIDE:
            yield f"{module.path}:{line}: {module.room} must not import {package}"


def wing_of(name: str) -> str | None:
    """The wing that a module of infrastructure is in, by its dotted name from the room on."""
    room, *rest = name.split(".")
    if room != "infrastructure" or not rest:
        return None
    if rest[0] in MAY_IMPORT:
        return rest[0]
    return next((wing for wing, modules in TOP.items() if rest[0] in modules), "writing")


def wings_import_lower_ones(module: Module) -> Iterator[str]:
    own = wing_of(module.name)
    for name, line in module.names():
        wing = wing_of(name)
        if own and wing and wing != own and wing not in MAY_IMPORT[own]:
            yield f"{module.path}:{line}: {own} must not import {wing}"


def libraries_stay_where_they_belong(module: Module) -> Iterator[str]:
    for package, line in module.imports():
        places = ONLY_IN.get(package)
        if places is not None and not module.path.startswith(places):
            yield f"{module.path}:{line}: {package} is for {' and '.join(places)} only"


def only_the_interface_of_the_stores_is_known(module: Module) -> Iterator[str]:
    if wing_of(module.name) in ASK_ANY_STORE:
        for name, line in module.names():
            if name.startswith(STORES_INSIDES):
                yield f"{module.path}:{line}: {name} is one store's"


def sql_stays_in_the_stores(module: Module) -> Iterator[str]:
    if not module.path.startswith(SQL_IS_IN):
        for node in ast.walk(module.tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and SQL.match(text):
                yield f"{module.path}:{node.lineno}: SQL is for {' and '.join(SQL_IS_IN)} only"


def the_domain_needs_python_alone(module: Module) -> Iterator[str]:
    if module.room == "domain":
        for package, line in module.imports():
            if package not in sys.stdlib_module_names | {"domain"}:
                yield f"{module.path}:{line}: the domain must not import {package}"


def the_domain_reads_no_clock(module: Module) -> Iterator[str]:
    if module.room == "domain":
        for package, line in module.imports():
            if package in {"time", "datetime", "random", "threading", "os", "socket"}:
                yield f"{module.path}:{line}: the domain is pure, and {package} is not"


def modules_open_with_a_docstring(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.path}:1: no docstring says what this module is for"


def modules_fit(module: Module) -> Iterator[str]:
    lines = len(module.source.splitlines())
    if lines > MAX_MODULE_LINES:
        yield f"{module.path}:{lines}: {lines} lines; look for the second subject"


def functions_fit_a_screen(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{module.path}:{node.lineno}: {node.name} has {lines} lines"


RULES: tuple[Rule, ...] = (
    imports_point_left,
    wings_import_lower_ones,
    libraries_stay_where_they_belong,
    only_the_interface_of_the_stores_is_known,
    sql_stays_in_the_stores,
    the_domain_needs_python_alone,
    the_domain_reads_no_clock,
    modules_open_with_a_docstring,
    modules_fit,
    functions_fit_a_screen,
)


@cache
def modules(*folders: str) -> list[Module]:
    """Of the rooms, unless other folders are given."""
    folders = folders or (*ROOMS, FRONT_DOOR)
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Module(str(path.relative_to(ROOT)), path.read_text()) for path in paths]


def test_no_module_needs_itself_by_way_of_others() -> None:
    """TYPE_CHECKING counts: what must be read together is one thing in two files."""
    names = {module.name for module in modules()}
    graph = {}
    for module in modules():
        found = {name if name in names else name.rpartition(".")[0] for name, _ in module.names()}
        graph[module.name] = (found & names) - {module.name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_in_every_module(rule: Rule) -> None:
    wrong = [line for module in modules() for line in rule(module)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_module_of_tests_fits_too() -> None:
    wrong = [line for module in modules("tests") for line in modules_fit(module)]
    assert {line.partition(":")[0] for line in wrong} == STILL_LONG, "\n".join(wrong)


def test_every_room_is_looked_at() -> None:
    found = [module.path for module in modules()]
    assert {path.split("/")[0] for path in found} == {*ROOMS, FRONT_DOOR}
    assert {"domain/reservation.py", "infrastructure/stores/sqlite/session.py"} <= set(found)


long_function = '"""D."""\n\n\ndef f():\n' + "    pass\n" * 45
BAD = {
    "a rule that reaches for the store": (
        imports_point_left,
        Module(
            "domain/x.py",
            '"""D."""\n\nfrom reservation_expiry.infrastructure.errors import StoreError\n',
        ),
        ["domain/x.py:3: domain must not import infrastructure"],
    ),
    "a rule that reaches for a door, inside a function": (
        imports_point_left,
        Module("domain/x.py", "def f():\n    import reservation_expiry.api.http\n"),
        ["domain/x.py:2: domain must not import api"],
    ),
    "a store that reaches for a door": (
        imports_point_left,
        Module("infrastructure/x.py", "import time, reservation_expiry.api\n"),
        ["infrastructure/x.py:1: infrastructure must not import api"],
    ),
    "a store that climbs over the wall": (
        imports_point_left,
        Module("infrastructure/stores/x.py", "from ...api import http\nfrom ... import api\n"),
        [
            "infrastructure/stores/x.py:1: infrastructure must not import api",
            "infrastructure/stores/x.py:2: infrastructure must not import api",
        ],
    ),
    "a store that knows alarms, for a type": (
        wings_import_lower_ones,
        Module(
            "infrastructure/stores/sql/x.py",
            "if TYPE_CHECKING:\n    from reservation_expiry.infrastructure.alarms import clock\n",
        ),
        ["infrastructure/stores/sql/x.py:2: stores must not import alarms"],
    ),
    "a tool that knows the application": (
        wings_import_lower_ones,
        Module("infrastructure/replay/x.py", "from ..application import ReservationApplication\n"),
        ["infrastructure/replay/x.py:1: replay must not import application"],
    ),
    "a writer that knows a tool": (
        wings_import_lower_ones,
        Module("infrastructure/writer.py", "from .replay.verify import verify\n"),
        ["infrastructure/writer.py:1: writing must not import replay"],
    ),
    "a door that needs a test": (
        imports_point_left,
        Module("api/x.py", "from tests.support.clock import ManualClock\n"),
        ["api/x.py:1: api must not import tests"],
    ),
    "a second user of apscheduler": (
        libraries_stay_where_they_belong,
        Module("infrastructure/x.py", "\nfrom apscheduler.job import Job\n"),
        ["infrastructure/x.py:2: apscheduler is for infrastructure/alarms/scheduler.py only"],
    ),
    "SQL outside the store": (
        libraries_stay_where_they_belong,
        Module("api/x.py", "import sqlite3\nimport sqlalchemy.sql\n"),
        [
            "api/x.py:1: sqlite3 is for infrastructure/stores/sqlite/ only",
            "api/x.py:2: sqlalchemy is for infrastructure/alarms/ and infrastructure/stores/ only",
        ],
    ),
    "a tool that knows which store it has": (
        only_the_interface_of_the_stores_is_known,
        Module(
            "infrastructure/replay/x.py",
            "def f():\n    import reservation_expiry.infrastructure.stores.sqlite\n",
        ),
        ["infrastructure/replay/x.py:2: infrastructure.stores.sqlite is one store's"],
    ),
    "a statement outside the store": (
        sql_stays_in_the_stores,
        Module("infrastructure/x.py", 'QUERY = f"""\nSELECT 1 FROM {table}"""\n'),
        ["infrastructure/x.py:1: SQL is for infrastructure/stores/ only"],
    ),
    "HTTP in the store": (
        libraries_stay_where_they_belong,
        Module("infrastructure/x.py", "import flask, click\nimport uvicorn\nimport werkzeug\n"),
        [
            "infrastructure/x.py:1: flask is for api/ only",
            "infrastructure/x.py:1: click is for api/ only",
            "infrastructure/x.py:2: uvicorn is for api/ only",
            "infrastructure/x.py:3: werkzeug is for api/ only",
        ],
    ),
    "a rule that needs a library": (
        the_domain_needs_python_alone,
        Module("domain/x.py", "import re\nimport msgspec\nfrom . import errors\n"),
        ["domain/x.py:2: the domain must not import msgspec"],
    ),
    "a rule that reads the clock": (
        the_domain_reads_no_clock,
        Module("domain/x.py", "from datetime import datetime\n"),
        ["domain/x.py:1: the domain is pure, and datetime is not"],
    ),
    "no docstring": (
        modules_open_with_a_docstring,
        Module("api/x.py", "X = 1\n'not a docstring'\n"),
        ["api/x.py:1: no docstring says what this module is for"],
    ),
    "401 lines": (
        modules_fit,
        Module("api/x.py", "x = 1\n" * 401),
        ["api/x.py:401: 401 lines; look for the second subject"],
    ),
    "46 lines of a function": (
        functions_fit_a_screen,
        Module("api/x.py", long_function),
        ["api/x.py:4: f has 46 lines"],
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_the_rules_find_and_name_file_and_line_of(kind: str) -> None:
    rule, module, wrong = BAD[kind]
    assert list(rule(module)) == wrong


def test_every_rule_was_seen_to_find_something() -> None:
    assert {rule for rule, _, _ in BAD.values()} == set(RULES)


ALLOWED = [
    Module(
        "infrastructure/x.py",
        '"""D."""\nfrom . import errors\nfrom reservation_expiry.domain import events\n',
    ),
    Module(
        "infrastructure/stores/sqlite/x.py", '"""D."""\nfrom ..errors import A\nimport sqlite3\n'
    ),
    Module("api/x.py", '"""D."""\nimport flask\nfrom reservation_expiry.domain import events\n'),
    Module("domain/x.py", '"""D."""\nfrom .events import Held\nimport re\n'),
    Module("api/x.py", '"""D."""\n' + "x = 1\n" * 399),
    Module("api/x.py", long_function.replace("    pass\n", "", 1)),
]


@pytest.mark.parametrize("module", ALLOWED, ids=range(len(ALLOWED)))
def test_the_rules_let_pass_what_is_right(module: Module) -> None:
    assert [line for rule in RULES for line in rule(module)] == []
