"""Commands on a service: --url, and which service somebody is logged in to."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from reservation_expiry.api.cli.common import EXIT_NOT_FOUND, fail

if TYPE_CHECKING:  # most commands ask a database
    from reservation_expiry.api.client import ServiceClient

LOGGED_IN = "the service that you are logged in to"
WAYS_IN = "log in with `reservation-expiry login --url URL`"


def url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--url",
        is_flag=False,
        flag_value=LOGGED_IN,
        help="Ask the service there instead of a database; without a value, the one that you are "
        "logged in to.",
    )(command)


@dataclass(frozen=True)
class Login:
    """Where somebody is logged in, and the token that says so."""

    url: str
    token: str


def login_file() -> Path:
    from platformdirs import user_config_path

    return user_config_path("reservation-expiry") / "login.json"


def read_login() -> Login | None:
    """None if nobody is logged in."""
    path = login_file()
    try:
        found = json.loads(path.read_bytes())
        return Login(str(found["url"]), str(found["token"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        fail(f"{path} is damaged: {WAYS_IN}, which makes it anew")


@contextmanager
def service(url: str) -> "Iterator[ServiceClient]":
    """The service of `--url`. Only the one that somebody is logged in to is sent a token.

    What it refuses is a sentence and an exit code.
    """
    from reservation_expiry.api.client import InvalidUrl, ServiceClient, ServiceRefused, base_of

    context = click.get_current_context()
    if context.get_parameter_source("database") is ParameterSource.COMMANDLINE:
        raise click.UsageError("give --url or --database, not both", context)
    login = read_login()
    if url == LOGGED_IN:
        if login is None:
            raise click.UsageError(f"you are not logged in: {WAYS_IN}, or give --url URL", context)
        url = login.url
    try:
        is_known = login is not None and base_of(url) == login.url
        client = ServiceClient(url, login.token if login is not None and is_known else None)
    except InvalidUrl as error:
        raise click.BadParameter(str(error), context, param_hint="--url") from error
    with client:
        try:
            yield client
        except ServiceRefused as error:
            if error.status == 401 and not is_known:
                fail(f"{error} You are not logged in to {client.url}: {WAYS_IN}")
            if error.status == 400:
                raise click.UsageError(str(error), context) from error
            fail(str(error), EXIT_NOT_FOUND if error.status == 404 else 3)


def token_from_input() -> str:
    """One line of standard input, not shown where somebody types it."""
    if sys.stdin.isatty():
        return str(click.prompt("Token", hide_input=True, err=True)).strip()
    return sys.stdin.readline(1_000).strip()
