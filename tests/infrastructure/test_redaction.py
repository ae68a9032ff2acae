"""No password is in what is shown, however it was written."""

import logging
import time
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reservation_expiry.infrastructure.machine.redaction import redacted, without_secrets

# A mark that cannot be anything else, with what a password may have around and in it.
MARK = "zq7Zq"
passwords = st.builds(
    lambda before, after: f"{before}{MARK}{after}{MARK}", st.text(max_size=8), st.text(max_size=8)
)
words = st.text(st.characters(categories=("L", "N")), max_size=8)


def quoted(password: str) -> str:
    """As a value of a connection string."""
    return "'" + password.replace("\\", "\\\\").replace("'", "\\'") + "'"


URLS = {
    "in a URL": lambda p, w: f"postgresql://{w}:{quote(p, safe='')}@{w}:5432/{w}?sslmode=require",
    "in a URL, as it is": lambda p, w: f"postgres://{w}:{p}@host/{w}",
    "in an option": lambda p, w: f"--database=postgresql://{w}:{p}@host/",
    "of another scheme": lambda p, w: f"mysql+x://{w}:{p}@host/db",
    "in a parameter": lambda p, w: f"postgresql://host/db?user={w}&password={quote(p, safe='')}",
    "in a parameter in disguise": lambda p, w: f"postgresql://h/db?p%61ssword={quote(p, safe='')}",
    "of a key": lambda p, w: f"postgresql://h/db?sslpassword={quote(p, safe='')}&sslmode=require",
    "in both": lambda p, w: f"postgresql://u:{p}@h/db?password={quote(p, safe='')}",
    "in a connection string": lambda p, w: f"host=h password={quoted(p)} dbname=d",
    "with blanks": lambda p, w: f"host = h password = {quoted(p)}",
    "of a key in a connection string": lambda p, w: f"sslpassword={quoted(p)} host=h",
    "in a variable": lambda p, w: f"PGPASSWORD={quoted(p)}",
    "in JSON": lambda p, w: f'{{"password": "{quote(p, safe="")}", "host": "h"}}',
}
AROUND = [
    "{}",
    "Invalid value for '--limit': '{}' is not a valid integer.",
    "user: {}",
    "No such command '{}'.",
    "the database {} cannot be used",
    "--database {} --json",
]


@pytest.mark.parametrize("kind", URLS)
@given(password=passwords, word=words, around=st.sampled_from(AROUND))
@example(password=MARK, word="", around="{}")
def test_f68_no_password_is_shown(kind: str, password: str, word: str, around: str) -> None:
    text = around.format(URLS[kind](password, word))
    assert MARK not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://app@db.internal:5432/app",
        "postgresql://app@h1:1,h2:2/app?sslmode=verify-full&passfile=/etc/pass&sslrootcert=x",
        "data/reservations.db: no space left on device",
        "no pass over the alarms has ended for 4 s",
        "seat-12 is held until 14:03",
    ],
)
def test_what_has_no_password_is_left_as_it_is(text: str) -> None:
    assert redacted(text) == text


def test_the_rest_of_a_url_is_left_as_it_is() -> None:
    assert redacted("at postgresql://u:p@ss/w@h/db?x=1") == "at postgresql://u:***@h/db?x=1"
    assert redacted("host=h password='a b' port=5") == "host=h password=*** port=5"


@pytest.mark.parametrize("piece", ["a", "a ", "a= ", "x ", " ", "://a:", "password=", "'", "&a=@"])
def test_long_text_takes_no_time(piece: str) -> None:
    began = time.perf_counter()
    redacted(piece * 100_000)
    assert time.perf_counter() - began < 2


def test_log_lines_are_redacted() -> None:
    record = logging.LogRecord("x", 20, "", 0, "lost %s", ("postgresql://u:p@h/d",), None)
    assert without_secrets(record)
    assert record.getMessage() == "lost postgresql://u:***@h/d"
