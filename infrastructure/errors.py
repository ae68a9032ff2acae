"""What can go wrong between the rules and the disk.

Driver exceptions never leave the store modules: they are translated once, at that
boundary, into one of these, with the original as the cause.
"""

from eventsourcing.persistence import IntegrityError

from domain.errors import ReservationExpiryError


class StoreError(ReservationExpiryError):
    """The database could not do what was asked. Nothing was written."""

    code = "store-error"


class StoreBusy(StoreError):
    """Another process held the write lock for longer than we wait. Try again."""

    code = "store-busy"


class Overloaded(StoreError):
    """More commands wait than the queue takes. Try again."""

    code = "overloaded"


class StoreUnavailable(StoreError):
    """The database cannot be read or written now: an I/O error, a lost or read-only file."""

    code = "store-unavailable"


class OutcomeUnknown(StoreError):
    """The answer to a commit was lost, and what became of it could not be found out: it may
    have been carried out. Look, then try again if it was not."""

    code = "outcome-unknown"


class StoreFull(StoreError):
    """There is no room left on the disk."""

    code = "store-full"


class StoreStopped(StoreError):
    """The process is shutting down and takes no more commands."""

    code = "shutting-down"


class ForkedProcess(StoreError):
    """The store was opened before a fork: a connection must not be shared across one."""

    code = "forked-process"


class StoreDamaged(StoreError):
    """A page or a row of the database cannot be read: damaged on the disk. The rest may
    well be whole, and this will not heal by itself."""

    code = "store-damaged"


class VersionConflict(StoreError, IntegrityError):
    """An aggregate has moved on since the version that the caller built on."""

    code = "version-conflict"


class ObjectElsewhere(StoreError):
    """Another process runs the durable object, and has not handed it over in time."""

    code = "object-elsewhere"


class ObjectDropped(StoreError):
    """The durable object was dropped from memory: what it had not written is gone."""

    code = "object-dropped"


class UndecodableEvent(StoreError):
    """An event in the log cannot be read: damaged, or written by code we do not have."""

    code = "undecodable-event"


class UnknownTopic(UndecodableEvent):
    """An event's topic is not one of ours. Nothing is imported to find out more."""

    code = "unknown-topic"


class DatabaseRefused(ReservationExpiryError):
    """The database file is not one that this code may open for service."""

    code = "database-refused"


class InvalidAddress(DatabaseRefused):
    """What is to say where the database is says nothing that we know."""

    code = "invalid-address"


class ForeignDatabase(DatabaseRefused):
    """The file is not a reservation-expiry database."""

    code = "foreign-database"


class NewerSchema(DatabaseRefused):
    """The file was written by a newer release than this one."""

    code = "newer-schema"


class DamagedLog(DatabaseRefused):
    """Committed events are missing from the log."""

    code = "damaged-log"


class DatabaseNotWritable(DatabaseRefused):
    """The file or its folder cannot be created or written."""

    code = "database-not-writable"
