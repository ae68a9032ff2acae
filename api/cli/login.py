"""Commands on being somebody: log in to a service, see who one is there, log out."""

import click

from reservation_expiry.api.cli.common import Command, fail, json_option, print_json
from reservation_expiry.api.cli.remote import Login, login_file, read_login, token_from_input


@click.command(cls=Command)
@click.option("--url", required=True, help="Where the service is: https://tickets.example")
def login(url: str) -> None:
    """Log in to a service. The token is read from standard input, never from an argument."""
    from reservation_expiry.api.client import InvalidUrl, ServiceClient, ServiceRefused, base_of
    from reservation_expiry.domain.tokens import credential_of

    try:
        base = base_of(url)
    except InvalidUrl as error:
        raise click.BadParameter(str(error), param_hint="--url") from error
    token = token_from_input()
    if credential_of(token) is None:
        raise click.UsageError("standard input is no token: it begins with rxt_ and is one line")
    _warn_of_plain_text(base)
    with ServiceClient(base, token) as client:
        try:
            found = client.ask("GET", "whoami")
        except ServiceRefused as error:
            fail(str(error))
    if not isinstance(found, dict) or found.get("authType") != "token":
        fail(f"{base} asks for no token: give --url {base} to commands, without logging in")
    _keep(Login(base, token))
    click.echo(f"logged in to {base} as {found['name']}, {found['scope']}")


@click.command(cls=Command)
@json_option
def whoami(as_json: bool) -> None:
    """Say who you are, where, and what you may."""
    found = _who()
    if as_json:
        print_json(found)
    elif not found["loggedIn"]:
        click.echo(found.get("reason", "you are not logged in"))
    else:
        click.echo(f"{found['name']}, {found['scope']}, at {found['url']} ({found['namespace']})")


@click.command(cls=Command)
def logout() -> None:
    """Forget the token. It stays valid: `token revoke` ends it."""
    known = read_login()
    login_file().unlink(missing_ok=True)
    click.echo("you were not logged in" if known is None else f"logged out of {known.url}")


def _who() -> dict[str, object]:
    known = read_login()
    if known is None:
        return {"loggedIn": False}
    from reservation_expiry.api.client import ServiceClient, ServiceRefused

    with ServiceClient(known.url, known.token) as client:
        try:
            found = client.ask("GET", "whoami")
        except ServiceRefused as error:
            if error.status != 401:
                fail(str(error))
            return {"loggedIn": False, "url": known.url, "reason": str(error)}
    return {"loggedIn": True, **found, "url": known.url}


def _keep(known: Login) -> None:
    import msgspec

    from reservation_expiry.infrastructure.machine.files import (
        FILE_MODE,
        make_folder,
        opened_for_writing,
    )

    path = login_file()
    make_folder(path.parent)
    with opened_for_writing(path, lambda _: True, force=True) as file:
        file.write(msgspec.json.encode({"url": known.url, "token": known.token}))
    path.chmod(FILE_MODE)  # one that was there keeps its own


def _warn_of_plain_text(url: str) -> None:
    from urllib.parse import urlsplit

    from reservation_expiry.api.access import is_loopback

    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(str(parts.hostname)):
        click.echo(
            f"reservation-expiry: {url} is not encrypted: whoever is on the way reads the token",
            err=True,
        )
