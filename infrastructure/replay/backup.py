"""Whole databases in and out: backup, restore, import of an exported log, copy.

What is to be in a file is prepared beside it and verified there, and put in its place in one
step, the place being held from the beginning; a server's database is filled in one
transaction, under its log's lock. Either way an interruption leaves the target as it was, and
nothing that somebody else wrote there meanwhile is lost.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from reservation_expiry.infrastructure.errors import (
    DamagedLog,
    DatabaseRefused,
    ImportRefused,
    VersionConflict,
)
from reservation_expiry.infrastructure.event_mapper import EventMapper
from reservation_expiry.infrastructure.machine.files import FileRefused, make_folder, part_beside
from reservation_expiry.infrastructure.replay.parallel import verify_with_all_cores
from reservation_expiry.infrastructure.replay.rebuild import rebuild
from reservation_expiry.infrastructure.replay.transfer import read_log, read_store
from reservation_expiry.infrastructure.replay.verify import Progress, VerifyReport
from reservation_expiry.infrastructure.stores.address import Address, refuse_no_file
from reservation_expiry.infrastructure.stores.opening import log_id_of, opened
from reservation_expiry.infrastructure.stores.row_types import EventRow
from reservation_expiry.infrastructure.stores.sql.head import new_log_id
from reservation_expiry.infrastructure.stores.store import DatabaseFile, Store, open_store
from reservation_expiry.infrastructure.stores.transaction import transaction
from reservation_expiry.infrastructure.unit_of_work import UnitOfWork, Work

TWO_VERSIONS = "two events have the same version of one reservation"


def backup(
    source: Address,
    target: Path,
    progress: Progress = lambda events: None,
    *,
    force: bool = False,
) -> VerifyReport:
    """Copies a database file, served or not, into one verified file of this release's schema.

    A database of ours that is there and holds events is replaced with `force` only, and
    nothing else ever is. Raises DatabaseRefused if the source is not one of ours or the copy
    does not verify, FileRefused or DatabaseRefused if the target is not to be replaced,
    DatabaseInUse if some process has it open, and OSError if it cannot be written.
    """
    return _copied(source, target, progress, force=force, to_serve=False)


def restore(
    source: Path,
    target: Address,
    progress: Progress = lambda events: None,
    *,
    force: bool = False,
) -> VerifyReport:
    """Puts a backup in the target's place: a backup the other way. Raises as `backup`."""
    return _copied(source, _as_file(target).path, progress, force=force, to_serve=True)


def _copied(
    source: Address, target: Path, progress: Progress, *, force: bool, to_serve: bool
) -> VerifyReport:
    origin, place = _as_file(source), _as_file(target)
    refuse_no_file(origin.path)
    refuse_no_file(target)
    if target.exists() and origin.path.exists() and target.samefile(origin.path):
        raise DatabaseRefused(f"{target} is the database itself")
    with opened(source, log_only=True) as store:
        if to_serve:
            make_folder(target.parent)
        with place.claimed() as claim, part_beside(claim.path) as part:
            if claim.holds_events() and not force:
                raise FileRefused(f"{target} holds events already: --force replaces it")
            store.as_file().copy_to(part)
            report = _verified_part(part, progress)
            if to_serve:  # positions behind the backup are given out again
                begin_log(part, new_log_id())
            claim.put(part, to_serve=to_serve)
            return report


def _as_file(address: Address) -> DatabaseFile:
    """Nothing is opened. Raises DatabaseRefused if it is a server's."""
    return open_store(address).as_file()


def import_log(
    source: str, target: Address, progress: Progress = lambda events: None
) -> VerifyReport:
    """Makes a database from an exported log (`-`: standard input).

    Raises ImportRefused if anything in it is wrong or the target holds events already,
    and DatabaseInUse; nothing is changed then.
    """
    return _fill(target, read_log(source, EventMapper(), progress), progress)


def copy_log(
    source: Address, target: Address, progress: Progress = lambda events: None
) -> VerifyReport:
    """Makes a database from another one's log, which may be served meanwhile.

    What is committed there after it began is not in the copy. It is the same log. Raises as
    `import_log`.
    """
    with opened(source, log_only=True) as store:
        with store.read_transaction() as reads:
            log_id = log_id_of(store, reads)
        return _fill(target, read_store(store, EventMapper(), progress), progress, log_id)


def begin_log(address: Address, log_id: str) -> None:
    """What is there is that log from now on."""
    store = open_store(address)
    try:
        with transaction(store) as session:
            session.begin_log(log_id)
    finally:
        store.close()


def _fill(
    target: Address,
    batches: Iterable[list[EventRow]],
    progress: Progress,
    log_id: str | None = None,
) -> VerifyReport:
    store = open_store(target)
    try:
        return fill(store, batches, progress, log_id)
    finally:
        store.close()


def fill(
    store: Store,
    batches: Iterable[list[EventRow]],
    progress: Progress = lambda events: None,
    log_id: str | None = None,
) -> VerifyReport:
    """Takes events, as they are, into an empty log, projects and verifies them. With a
    `log_id` it is that log from then on.

    Raises ImportRefused if the log is not empty or has two events of one version.
    """
    mapper = EventMapper()
    with store.filling() as filling:

        def execute(work: Work) -> object:
            with filling.transaction() as session:
                return work.run(UnitOfWork(session, mapper, store.clock.now_ms()))

        try:
            filling.append(_first_read(batches))
            rebuild(execute, mapper)
            if log_id is not None:
                with filling.transaction() as session:
                    session.begin_log(log_id)
        except VersionConflict as error:
            raise ImportRefused(TWO_VERSIONS) from error
        return filling.finish(lambda address: _verified(address, progress))


def _first_read(batches: Iterable[list[EventRow]]) -> Iterator[list[EventRow]]:
    """What is wrong with the source is said before anything is made."""
    rows = iter(batches)
    first = next(rows, [])
    return chain([first], rows)


def _verified_part(part: Path, progress: Progress) -> VerifyReport:
    """Of a copy, which may be of an older schema until now."""
    store = open_store(part)
    try:
        store.migrate()
    finally:
        store.close()
    return _verified(part, progress)


def _verified(address: Address, progress: Progress) -> VerifyReport:
    store = open_store(address)
    try:
        report = verify_with_all_cores(store, progress)
    finally:
        store.close()
    if report.found:
        first = report.differences[0]
        raise DamagedLog(
            f"the copy in {address} does not verify: {report.found} differences, "
            f"the first at position {first.position}: {first.originator_id} {first.problem}"
        )
    return report
