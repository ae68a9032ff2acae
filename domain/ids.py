"""Ids in the log, and what people call them: `reservation/seat-12` is seat-12,
`object/Counter/foo` is Counter/foo. Prefixes, validity and parsing are here and nowhere else.
"""

import re
from typing import NamedTuple

from reservation_expiry.domain.errors import InvalidObjectName, InvalidReservationId

ID_PREFIX = "reservation/"
OBJECT_PREFIX = "object/"
ITEM_PREFIX = "item/"
_ITEM = re.compile("[A-Za-z0-9._:-]{1,100}")
NAME_PATTERN = "[a-z0-9][a-z0-9-]{1,38}[a-z0-9]"
MAX_NAME_CHARACTERS = 255  # of an object's
_NAME = re.compile(NAME_PATTERN)


class ReservationId(NamedTuple):
    """Which reservation. Its text is the id in the log."""

    name: str

    def __str__(self) -> str:
        return ID_PREFIX + self.name


class ObjectId(NamedTuple):
    """Which object: the name of its class, and its own."""

    class_name: str
    name: str

    def __str__(self) -> str:
        return f"{objects_of(self.class_name)}{self.name}"


def reservation_id(name: str) -> ReservationId:
    """Raises InvalidReservationId unless the name is 3-40 lowercase letters, digits or inner
    hyphens."""
    if not is_name(name):
        raise InvalidReservationId(
            f"{name!r} is not a reservation id: use 3-40 lowercase letters, digits or hyphens, "
            "with no hyphen at either end"
        )
    return ReservationId(name)


def aggregate_id(name: str) -> str:
    """The id in the log of the reservation called `name`. Raises as `reservation_id`."""
    return str(reservation_id(name))


def is_name(name: str) -> bool:
    """Whether a reservation may be called so."""
    return _NAME.fullmatch(name) is not None


def is_reservation(aggregate_id: str) -> bool:
    return aggregate_id.startswith(ID_PREFIX)


def is_object(aggregate_id: str) -> bool:
    return aggregate_id.startswith(OBJECT_PREFIX)


def is_item_name(name: str) -> bool:
    """Whether an item may be called so."""
    return _ITEM.fullmatch(name) is not None


def item_name(aggregate_id: str) -> str | None:
    """What the item of that id is called; None if it is none of an item."""
    name = aggregate_id.removeprefix(ITEM_PREFIX)
    return name if aggregate_id.startswith(ITEM_PREFIX) and is_item_name(name) else None


def reservation_name(aggregate_id: str) -> str:
    """What the reservation of that id is called; an id of something else as it is."""
    return aggregate_id.removeprefix(ID_PREFIX)


def object_id(class_name: str, name: str) -> ObjectId:
    """Raises InvalidObjectName unless the name is 1-255 printable characters."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidObjectName(
            f"an object's name is text of 1 to {MAX_NAME_CHARACTERS} characters, not {name!r}"
        )
    if not name.isprintable():
        raise InvalidObjectName(f"an object's name is printable text, which {name!r} is not")
    return ObjectId(class_name, name)


def objects_of(class_name: str) -> str:
    """What the ids of all objects of a class begin with."""
    return f"{OBJECT_PREFIX}{class_name}/"


def object_of(aggregate_id: str) -> ObjectId:
    """The object whose id this is. Raises ValueError if it is none of an object."""
    identity = parse_object_id(aggregate_id)
    if identity is None:
        raise ValueError(f"{aggregate_id!r} is not the id of an object")
    return identity


def parse_object_id(aggregate_id: str) -> ObjectId | None:
    """The object that an id in the log speaks of, None if it is not one of an object."""
    if not is_object(aggregate_id):
        return None
    class_name, _, name = aggregate_id.removeprefix(OBJECT_PREFIX).partition("/")
    if not class_name.isidentifier() or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        return None
    return ObjectId(class_name, name) if name.isprintable() else None


def id_of(name: str) -> str:
    """The id in the log of what people call so: a reservation's name, or Counter/foo.

    Raises InvalidReservationId or InvalidObjectName.
    """
    if "/" not in name:
        return aggregate_id(name)
    identity = parse_object_id(OBJECT_PREFIX + name)
    if identity is None:
        raise InvalidObjectName(f"{name!r} is not an object: give its class and name, Counter/foo")
    return str(identity)


def name_of(originator_id: str) -> str:
    """The other way; an id that is nobody's is shown as it is."""
    return reservation_name(originator_id).removeprefix(OBJECT_PREFIX)


def named(originator_id: str) -> dict[str, str]:
    """For programs: `reservationId`, or `className` and `objectName`."""
    identity = parse_object_id(originator_id)
    item = item_name(originator_id)
    if item is not None:
        return {"item": item}
    if identity is None:
        return {"reservationId": reservation_name(originator_id)}
    return {"className": identity.class_name, "objectName": identity.name}
