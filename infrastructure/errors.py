"""What can go wrong between the rules and the disk.

Driver exceptions never leave the store modules: they are translated once, at that
boundary, into one of these, with the original as the cause. The text of an error is for
the log and the operator, hosts, paths and the driver's words included; what a client is
told is its class's `sentence`.
"""

from eventsourcing.persistence import IntegrityError

from reservation_expiry.domain.errors import ReservationExpiryError


class StoreError(ReservationExpiryError):
    """The database could not do what was asked. Nothing was written.

    `of_one`: what is to blame may be one row, or one piece of work among several; else it
    is the database as a whole, and nothing else would have fared better.
    """

    code = "store-error"
    sentence = "the database could not do what was asked"
    of_one = False

    @property
    def public(self) -> str:
        return self.sentence


class StoreBusy(StoreError):
    """Another process held the write lock for longer than we wait. Try again."""

    code = "store-busy"
    sentence = "the database is busy: try again"


class Overloaded(StoreError):
    """More commands wait than the queue takes. Try again."""

    code = "overloaded"
    sentence = "too many requests wait for the database: try again"


class StoreUnavailable(StoreError):
    """The database cannot be read or written now: an I/O error, a lost or read-only file."""

    code = "store-unavailable"
    sentence = "the database cannot be used now: try again"


class OutcomeUnknown(StoreError):
    """The answer to a commit was lost, and what became of it could not be found out: it may
    have been carried out. Look, then try again if it was not."""

    code = "outcome-unknown"
    sentence = "it may have been carried out or not: look before you try again"


class LogDeleted(StoreError):
    """The log was deleted, with its namespace, and perhaps another one begun in its place."""

    code = "deleted"
    sentence = "this namespace was deleted"


class StoreFull(StoreError):
    """There is no room left on the disk."""

    code = "store-full"
    sentence = "there is no room left on the database's disk"


class StoreStopped(StoreError):
    """The process is shutting down and takes no more commands."""

    code = "shutting-down"
    sentence = "the service is shutting down"


class ForkedProcess(StoreError):
    """The store was opened before a fork: a connection must not be shared across one."""

    code = "forked-process"
    sentence = "this process may not use the database"


class StoreDamaged(StoreError):
    """A page or a row of the database cannot be read: damaged on the disk. The rest may
    well be whole, and this will not heal by itself."""

    code = "store-damaged"
    sentence = "a part of the database that this needs is damaged"
    of_one = True


class RowRefused(StoreError):
    """The database refuses a row for what is in it, and will refuse it again."""

    code = "row-refused"
    sentence = "the database does not take this"
    of_one = True


class VersionConflict(StoreError, IntegrityError):
    """An aggregate has moved on since the version that the caller built on."""

    code = "version-conflict"
    sentence = "it has been changed meanwhile: look, and try again"
    of_one = True


class EventRefused(StoreError):
    """Saved by the library's interface, an event would leave something that never ends."""

    code = "event-refused"
    sentence = "these events are not what the rules would have decided"
    of_one = True


class ObjectElsewhere(StoreError):
    """Another process runs the durable object, and has not handed it over in time."""

    code = "object-elsewhere"
    sentence = "another process has this object and did not hand it over in time: try again"
    of_one = True


class ObjectDropped(StoreError):
    """The durable object was dropped from memory: what it had not written is gone."""

    code = "object-dropped"
    sentence = "the object could not be written and was dropped from memory: try again"
    of_one = True


class UndecodableEvent(StoreError):
    """An event in the log cannot be read: damaged, or written by code we do not have."""

    code = "undecodable-event"
    sentence = "an event of its history cannot be read"
    of_one = True


class UnknownTopic(UndecodableEvent):
    """An event's topic is not one of ours. Nothing is imported to find out more."""

    code = "unknown-topic"
    sentence = "its history has an event of a kind that is not known here"


class ImportRefused(ReservationExpiryError):
    """The file is not a whole and undamaged log, or must not go where it was to go."""

    code = "import-refused"


class DatabaseRefused(ReservationExpiryError):
    """The database file is not one that this code may open for service."""

    code = "database-refused"

    @property
    def public(self) -> str:
        return "the database cannot be served from"


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


def is_of_one(error: BaseException) -> bool:
    """Whether one row or one piece of work may be to blame for it, rather than the database
    as a whole. A fault of our own is somebody's whom it happened to."""
    if isinstance(error, StoreError):
        return error.of_one
    return not isinstance(error, DatabaseRefused)


# Trying again does not help against these by itself.
ROW_ERRORS = (StoreDamaged, RowRefused, UndecodableEvent)
