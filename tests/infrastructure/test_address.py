"""What an address is: every spelling that is none is refused, and none of it repeated."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from reservation_expiry.infrastructure.errors import InvalidAddress
from reservation_expiry.infrastructure.stores.address import PostgresAddress, address_of

ROOT = Path(__file__).parents[2]
SECRET = "s3cret"
# F46, F66: what people wrote, and got a SQLite file of that name from.
NO_ADDRESSES = [
    "",
    " ",
    " data/x.db",
    "data/x.db\t",
    "data/x.db\n",
    "\u00a0x.db",
    '"data/x.db"',
    "'data/x.db",
    "\u201cdata/x.db\u201d",
    f'"postgresql://u:{SECRET}@h/db"',
    f" postgresql://u:{SECRET}@h/db",
    f"host=h user=u password={SECRET}",
    f"dbname=x password = {SECRET}",
    f"user=u password='{SECRET}' host=h",
    f"jdbc:postgresql://h/db?user=u&password={SECRET}",
    f"postgres+psycopg://u:{SECRET}@h/db",
    f"postgresql:/u:{SECRET}@h/db",
    f"postgresql:u:{SECRET}@h/db",
    f"PostgreSQL://u:{SECRET}@h/db",
    f"mysql://u:{SECRET}@h/db",
    f"u:{SECRET}@h/db",
    f"u:{SECRET[:2]}/{SECRET}@h/db",
    f"Server=h;Database=d;Pwd={SECRET}",
    f"DATABASE_URL=postgresql://u:{SECRET}@h/db",
    "localhost:5432/db",
    "service=prod",
    "file:x.db",
    "file:x.db?mode=memory",
    "sqlite:x.db",
    "sqlite://x.db",
    "sqlite3:x.db",
    "sqlite:///",
    "sqlite:///file:x.db",
    ":memory:",
    "sqlite:///:memory:",
    "a\0b",
    "a\nb.db",
    "a\x1bb.db",
    "a\u2028b.db",
    "\udcff.db",
    "data/",
    "data/.",
    "..",
    "~/x.db",
    "$HOME/x.db",
    "${DATABASE}",
    "{{ database }}",
    "<path>",
    "%DATABASE%",
    "-",
    "--json",
    "x.db-wal",
    "data/x.db-journal",
    f"postgresql://u:{SECRET}@x@h/db",
    f"postgresql://u:{SECRET}/x@h/db",
    f"postgresql://u:{SECRET}%zz@h/db",
    f"postgresql://h/db?nonsense={SECRET}",
]


@pytest.mark.parametrize("text", NO_ADDRESSES, ids=repr)
def test_f46_f66_what_is_no_address_is_refused_and_none_of_it_repeated(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidAddress) as refused:
        address_of(text)
    assert "cret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "environment", "database"),
    [
        ((), {}, "data/reservations.db"),
        (("DATABASE=file:x.db",), {}, "file:x.db"),
        (("DATABASE=",), {}, ""),
        (("DATABASE=x.db ",), {}, "x.db "),
        ((), {"RESERVATION_DATABASE": ""}, ""),
        ((), {"RESERVATION_DATABASE": " x.db"}, " x.db"),
        (("DATABASE=y.db",), {"RESERVATION_DATABASE": "x.db"}, "x.db"),
    ],
)
def test_f46_make_hands_on_what_it_is_given_as_it_is(
    words: tuple[str, ...], environment: dict[str, str], database: str
) -> None:
    """So that it is refused, or not, as if it had been given to the command."""
    show = 'show: ; @printf "[%s]" "$$RESERVATION_DATABASE"'
    done = subprocess.run(
        ["make", "-s", "-C", ROOT, "--eval", show, "show", *words],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], **environment},
    )
    assert done.stdout == f"[{database}]"


HONEST = [
    "data/reservations.db",
    "x",
    "my seats.db",
    "it's.db",
    "r\u00e9serv\u00e9 \U0001f39f.db",
    "a=b.db",
    "a@b.db",
    "50%.db",
    "seats (1).db",
    "#1.db",
    "a;b.db",
    "seats-2026-11-29T14:03:07.db",
    "../x.db",
    "/var/lib/seats/reservations.db",
    "/data/host=x/password=y.db",
    "./file:x.db",
    "./:memory:",
    "./-",
    "./~x.db",
    "shows/host.db",
    "transport=1.db",
]


@pytest.mark.parametrize("text", HONEST)
def test_an_honest_file_name_is_an_address(text: str) -> None:
    assert address_of(text) == Path(text)
    assert address_of(f"sqlite:///{text}") == Path(text)


@pytest.mark.parametrize(
    "url", ["postgresql://", "postgres://u@h:1,g:2/db", "postgresql://u:a%40b@h/?sslmode=require"]
)
def test_a_postgresql_url_is_an_address(url: str) -> None:
    assert address_of(url) == PostgresAddress(url)


def test_f66_what_is_there_and_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe, link, listening = tmp_path / "pipe", tmp_path / "link", socket.socket(socket.AF_UNIX)
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    listening.bind(str(tmp_path / "socket"))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (pipe, link, tmp_path / "socket", tmp_path, Path("/dev/full"), loop):
        with pytest.raises(InvalidAddress):
            address_of(str(path))
    listening.close()


@pytest.mark.parametrize("name", ["x" * 256, "y" * 5_000, "\u00f6" * 128])
def test_f77_a_name_too_long_for_the_file_system_is_told(name: str) -> None:
    with pytest.raises(InvalidAddress, match=r"\.\.\..*: file name too long"):
        address_of(name)
