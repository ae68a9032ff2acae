"""Reservations that end by themselves: what a program imports.

    from reservation_expiry import Reservations

    with Reservations("reservations.db") as reservations:
        reservations.hold("seat-12", ttl_seconds=30)

`Reservations` is in `reservations.py`; `DurableObject` and `EventSchedule` are bases of
object classes, which `Reservations.objects` runs. Each name is imported when it is first
asked for: the command line begins in this package (`__main__.py`) and needs none of them.
"""

from importlib import import_module

TYPE_CHECKING = False  # as typing's, whose import every command would wait for
if TYPE_CHECKING:
    from reservation_expiry.domain.errors import DomainError, ReservationExpiryError
    from reservation_expiry.domain.reservation import Reservation
    from reservation_expiry.infrastructure.errors import DatabaseRefused, StoreError
    from reservation_expiry.infrastructure.objects.durable_object import DurableObject
    from reservation_expiry.infrastructure.objects.event_schedule import EventSchedule

    from .reservations import LoggedEvent, Reservations

__all__ = [
    "DatabaseRefused",
    "DomainError",
    "DurableObject",
    "EventSchedule",
    "LoggedEvent",
    "Reservation",
    "ReservationExpiryError",
    "Reservations",
    "StoreError",
]

_HOMES = {
    "DatabaseRefused": "infrastructure.errors",
    "DomainError": "domain.errors",
    "DurableObject": "infrastructure.objects.durable_object",
    "EventSchedule": "infrastructure.objects.event_schedule",
    "LoggedEvent": "reservations",
    "Reservation": "domain.reservation",
    "ReservationExpiryError": "domain.errors",
    "Reservations": "reservations",
    "StoreError": "infrastructure.errors",
}


def __getattr__(name: str) -> object:
    """Imports a name of `__all__` from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
