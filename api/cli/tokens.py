"""Commands on tokens: who may ask a service that is served with --auth required."""

import re

import click

from reservation_expiry.api.cli.common import (
    EXIT_NOT_FOUND,
    Command,
    Parameter,
    application,
    database_option,
    fail,
    instant,
    json_option,
    print_json,
    queries_and_clock,
)
from reservation_expiry.domain.tokens import SCOPES, TokenScope
from reservation_expiry.infrastructure.stores.address import Address

HEADINGS = ("ID", "NAME", "SCOPE", "CREATED", "EXPIRES", "REVOKED", "STATE")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_MS = 100 * 365 * 86_400_000


class Span(Parameter):
    """How long something lives: 30d, 12h, 90m, 45s. Converts to milliseconds."""

    name = "span"

    def convert(self, value: object, param: click.Parameter | None, ctx: object) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch("([1-9][0-9]{0,9})([smhd])", str(value))
        lives_ms = 0 if found is None else int(found[1]) * _UNIT_MS[found[2]]
        if not 0 < lives_ms <= _MOST_MS:
            raise click.BadParameter(
                f"{value!r} is not a span: use 30d, 12h, 90m or 45s, at most 36500d", param=param
            )
        return lives_ms


@click.group()
def token() -> None:
    """Make, list and revoke tokens, beside a server or without one."""


@token.command(cls=Command)
@click.option("--name", required=True, help="Whose it is; history says it of what is done by it.")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    required=True,
    help="write reads too; admin replays and re-drives alarms, too.",
)
@click.option("--expires", type=Span(), help="How long it lives, as 30d or 12h; else for ever.")
@database_option
def create(name: str, scope: TokenScope, expires: int | None, database: Address) -> None:
    """Make a token, and print it. It is shown this once, and kept nowhere."""
    with application(database) as running:
        from reservation_expiry.infrastructure.tokens import CreateToken, new_credential

        credential = new_credential()
        running.writer.execute(CreateToken(credential, name, scope, expires))
    click.echo(str(credential))


@token.command(name="list", cls=Command)
@database_option
@json_option
def list_tokens(database: Address, as_json: bool) -> None:
    """List tokens, the oldest first, those that are not valid any more among them."""
    from reservation_expiry.infrastructure.tokens import token_of

    with queries_and_clock(database) as (asked, clock):
        now_ms = clock.now_ms()
        tokens = [token_of(row) for row in asked.tokens()]
    if as_json:
        for one in tokens:
            print_json(
                {
                    "id": one.id,
                    "name": one.name,
                    "scope": one.scope,
                    "createdAt": one.created_at_ms,
                    "expiresAt": one.expires_at_ms,
                    "revokedAt": one.revoked_at_ms,
                    "state": one.state(now_ms),
                }
            )
        return
    from reservation_expiry.api.cli.output import print_table

    print_table(
        HEADINGS,
        [
            (
                one.id,
                one.name,
                one.scope,
                instant(one.created_at_ms),
                instant(one.expires_at_ms),
                instant(one.revoked_at_ms),
                one.state(now_ms),
            )
            for one in tokens
        ],
    )


@token.command(cls=Command)
@click.argument("name")
@database_option
def revoke(name: str, database: Address) -> None:
    """End the valid token NAME, or the one of this id: no process takes it a second later."""
    with application(database) as running:
        from reservation_expiry.infrastructure.tokens import RevokeToken

        revoked = running.writer.execute(RevokeToken(name))
    if revoked is None:
        fail(f"there is no valid token {name}", EXIT_NOT_FOUND)
    click.echo(f"{revoked.name} is revoked")
