"""Which due alarms are begun together, so that one that ends its process becomes known.

A claim that outlived its lease was under way when its process ended, or stood still. Its
token says in what company: `<unique>+<how many together>`, or `<unique>` if nothing else was
under way there. One that was alone has ended it, most likely: that counts as an attempt. Of
several nobody knows which, so none is counted; they are begun again in smaller companies
(`domain.alarm.company_after`), each with the process's objects to itself for a while, until
the one that ends it is alone. All others end well in some company, and their claims with it.

Only objects' alarms run code of people's, so a reservation's is not suspected beside one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from reservation_expiry.domain.alarm import company_after
from reservation_expiry.domain.alarm_slot import AlarmSlot
from reservation_expiry.domain.ids import is_reservation

Due = tuple[str, AlarmSlot]
"""(id, its state as it stands in the row)"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What is under way of objects' alarms in the process that claims.

    `fresh` and `prime` are those that nothing else was under way with when they were
    claimed: for the first time, or because they are suspected. `may_wait` says whether
    suspects may wait a little for the rest to end.
    """

    under_way: int = 0
    fresh: tuple[str, ...] = ()
    prime: tuple[str, ...] = ()
    may_wait: bool = False


NOBODY = Crowd()


@dataclass(slots=True)
class Chosen:
    """What to claim, with how many under way together each is; what was alone until now and
    has company by that; and whether suspects were left to wait."""

    claims: list[tuple[Due, int]] = field(default_factory=list)
    joined: tuple[str, ...] = ()
    waiting: bool = False


def new_token(together: int) -> str:
    """A unique mark of a claim that also says how many are under way together."""
    unique = uuid4().hex
    return unique if together == 1 else f"{unique}+{together}"


def together_at(token: str) -> int:
    """How many were under way together when this token was given."""
    number = token.partition("+")[2]
    return int(number) if number.isdecimal() else 1


def is_counted(state: AlarmSlot) -> bool:
    """Whether beginning it is one attempt more: unless nobody knows how the last one ended."""
    return state.token is None or together_at(state.token) == 1


def choose(due: Iterable[Due], crowd: Crowd) -> Chosen:
    """What to claim of the due alarms, the earliest of which come first."""
    due = list(due)
    chosen = Chosen()
    objects = _company([d for d in due if not is_reservation(d[0])])
    if _are_suspects(objects) and crowd.under_way and crowd.may_wait:
        objects, chosen.waiting = [], True
    _claim_objects(chosen, objects, crowd)
    reservations = _company([d for d in due if is_reservation(d[0])])
    together = len(reservations) + len(objects) + crowd.under_way
    chosen.claims += [(each, together) for each in reservations]
    return chosen


def _claim_objects(chosen: Chosen, objects: Sequence[Due], crowd: Crowd) -> None:
    """Suspects count as alone whatever else runs: of those it has been seen already that
    they, and not these, were under way at an end."""
    if not objects:
        return
    suspects = _are_suspects(objects)
    together = len(objects) + (0 if suspects else crowd.under_way)
    chosen.claims = [(each, together) for each in objects]
    chosen.joined = crowd.fresh + (crowd.prime if suspects else ())


def _company(due: Sequence[Due]) -> Sequence[Due]:
    """Suspects, as many as may be begun together; if there are none, all that are due."""
    suspects = [each for each in due if each[1].token is not None]
    if not suspects:
        return due
    company: list[Due] = []
    limit = len(suspects)
    for each in suspects:
        own_limit = company_after(together_at(each[1].token or ""))
        if len(company) < min(limit, own_limit):  # one that must be alone waits for its turn
            company.append(each)
            limit = min(limit, own_limit)
    return company


def _are_suspects(due: Sequence[Due]) -> bool:
    return bool(due) and due[0][1].token is not None
