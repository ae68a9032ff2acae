"""What people call an aggregate: `seat-12` for a reservation, `Counter/foo` for an object."""

from reservation_expiry.domain.durable_object import OBJECT_PREFIX, parse_object_id
from reservation_expiry.domain.errors import InvalidObjectName
from reservation_expiry.domain.reservation import ID_PREFIX, aggregate_id


def id_of(name: str) -> str:
    """The id in the log. Raises InvalidReservationId or InvalidObjectName."""
    if "/" not in name:
        return aggregate_id(name)
    identity = parse_object_id(OBJECT_PREFIX + name)
    if identity is None:
        raise InvalidObjectName(f"{name!r} is not an object: give its class and name, Counter/foo")
    return str(identity)


def name_of(originator_id: str) -> str:
    """The other way; an id that is nobody's is shown as it is."""
    return originator_id.removeprefix(ID_PREFIX).removeprefix(OBJECT_PREFIX)


def named(originator_id: str) -> dict[str, str]:
    """For programs: `reservationId`, or `className` and `objectName`."""
    identity = parse_object_id(originator_id)
    if identity is None:
        return {"reservationId": originator_id.removeprefix(ID_PREFIX)}
    return {"className": identity.class_name, "objectName": identity.name}
