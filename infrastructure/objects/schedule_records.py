"""How the events of a schedule stand in its object's storage.

    event:<id>         what was put: its times, its payload, its revision
    progress:<id>      what its runs change, so that a run writes nothing of the payload
    due:<when>:<id>    when it is to be looked at, in an order that makes the earliest the first
    parked:<id>        instead of that, if it waits for somebody
    began:<id>         that it is being run, where one such run has ended its process before

So putting, moving, cancelling and finding what is due take a few keys each, however many
events there are. Events that were put by the first release have their progress in `event:`
until they have run once more.
"""

import logging
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from reservation_expiry.domain.schedule import MAX_ID_CHARACTERS
from reservation_expiry.domain.scheduled_entry import Progress, ScheduledEntry
from reservation_expiry.infrastructure.objects.storage import Storage

MAX_PAGE = 1_000
MAX_DUE = 100  # looked at at once

Event = dict[str, Any]
"""A scheduled entry as people see it."""

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
logger = logging.getLogger(__name__)
_PROGRESS_KEYS = {
    "revision": "revision",
    "run_at_ms": "runAt",
    "look_at_ms": "lookAt",
    "runs": "runs",
    "missed": "missed",
    "gave_up": "gaveUp",
    "attempts": "attempts",
    "parked": "parked",
    "next_problem": "nextProblem",
    "company": "company",
}


class Mark(NamedTuple):
    """A run that has begun: of which revision, and when."""

    revision: int
    began_ms: int


class ScheduleRecords:
    """Every method acts at once: awaiting one lets no other code in between."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def get(self, id: str) -> ScheduledEntry | None:
        if len(id) > MAX_ID_CHARACTERS:
            return None  # nothing can be kept under such a key
        put = await self._storage.get(f"event:{id}")
        if put is None:
            return None
        return _read(put, await self.progress(id) or _read_progress(put))

    async def event(self, id: str) -> Event | None:
        """As people see it."""
        found = await self.get(id)
        return None if found is None else shown(found)

    async def progress(self, id: str) -> Progress | None:
        """None if there is no such event, or it has not run since the first release."""
        stored = await self._storage.get(f"progress:{id}")
        return None if stored is None else _read_progress(stored)

    async def progress_of(self, id: str) -> Progress | None:
        """None if there is no such event. Does not read what was put, if it can."""
        progress = await self.progress(id)
        if progress is None and (found := await self.get(id)) is not None:
            return found.progress
        return progress

    async def new_revision(self) -> int:
        revision = (await self._storage.get("revision") or 0) + 1
        self._storage.put("revision", revision)
        return revision

    def put(self, entry: ScheduledEntry, before: ScheduledEntry | None) -> None:
        """Puts an entry, in the stead of the one of its id that was there before."""
        id, progress = entry.id, entry.progress
        place = _place(id, progress)
        put = _stored_entry(entry)
        self._storage.put({f"event:{id}": put, f"progress:{id}": _stored(progress), place: id})
        if before is not None and _place(id, before.progress) != place:
            self._storage.delete(_place(id, before.progress))

    def move(self, id: str, before: Progress, after: Progress | None) -> None:
        """Writes what a run has changed; None takes the event out."""
        if after is None:
            self._storage.delete([f"event:{id}", f"progress:{id}", _place(id, before)])
            return
        self._storage.put({f"progress:{id}": _stored(after), _place(id, after): id})
        if _place(id, before) != _place(id, after):
            self._storage.delete(_place(id, before))

    async def page(self, prefix: str, limit: int, after: str) -> list[Event]:
        start = f"{prefix}{after}\0" if after else None
        limit = min(limit, MAX_PAGE)
        found = await self._storage.list(prefix=prefix, start=start, limit=limit)
        events = [await self.event(key.removeprefix(prefix)) for key in found]
        return [event for event in events if event is not None]

    async def due(self, now_ms: int) -> dict[str, str]:
        """Ids of what is to be looked at now, the earliest first, by their places."""
        end = _due_key(now_ms + 1, "")
        found: dict[str, str] = await self._storage.list(prefix="due:", end=end, limit=MAX_DUE)
        return found

    def drop(self, place: str) -> None:
        """A place of an event that is not there. Nothing writes one, but it would ring for
        ever."""
        logger.error("%s names an event that is not there, and is deleted", place)
        self._storage.delete(place)

    async def next_due(self, count: int) -> list[tuple[int, str]]:
        """The earliest times at which something is to be looked at, with its id."""
        found = await self._storage.list(prefix="due:", limit=count)
        return [(int(key.split(":", 2)[1]), id) for key, id in found.items()]

    # What is being run

    def mark(self, revisions: Mapping[str, int], began_ms: int) -> None:
        """These are being run from now on, each of its revision."""
        marks = {id: {"revision": r, "beganAt": began_ms} for id, r in revisions.items()}
        self._storage.put({f"began:{id}": mark for id, mark in marks.items()})

    def unmark(self, ids: Sequence[str]) -> None:
        self._storage.delete([f"began:{id}" for id in ids])

    async def marked(self) -> dict[str, Mark]:
        found = await self._storage.list(prefix="began:", limit=MAX_DUE)
        return {
            key.removeprefix("began:"): Mark(mark["revision"], mark["beganAt"])
            for key, mark in found.items()
        }


def shown(entry: ScheduledEntry) -> Event:
    """An entry as people see it."""
    progress = entry.progress
    return {
        "id": entry.id,
        "runAt": progress.run_at_ms,
        "lookAt": progress.look_at_ms,
        "repeatMs": entry.repeat_ms,
        "cron": entry.cron,
        "zone": entry.zone,
        "payload": entry.payload,
        "runs": progress.runs,
        "missed": progress.missed,
        "gaveUp": progress.gave_up,
        "attempts": progress.attempts,
        "parked": progress.parked,
        "nextProblem": progress.next_problem,
        "revision": progress.revision,
    }


def entity_tag(event: Event) -> str:
    """A strong validator: another for each representation that is not the same, byte for byte."""
    return blake2b(_encode(event), digest_size=16).hexdigest()


def is_same(found: ScheduledEntry, asked: ScheduledEntry) -> bool:
    """Whether an entry was put as it is asked for now."""
    if not found.has_the_times_of(asked):
        return False
    # As text, for true is not 1, though Python says so.
    return _encode_sorted(found.payload) == _encode_sorted(asked.payload)


def _read(put: dict[str, Any], progress: Progress) -> ScheduledEntry:
    """The first release kept an entry's progress with it, and moved its time on with each run."""
    return ScheduledEntry(
        id=put["id"],
        first_at_ms=put["runAt"],
        repeat_ms=put["repeatMs"],
        cron=put["cron"],
        zone=put["zone"],
        payload=put["payload"],
        progress=progress,
        first_is_known="runs" not in put,
    )


def _stored_entry(entry: ScheduledEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "runAt": entry.first_at_ms,
        "repeatMs": entry.repeat_ms,
        "cron": entry.cron,
        "zone": entry.zone,
        "payload": entry.payload,
        "revision": entry.progress.revision,
    }


def _read_progress(stored: dict[str, Any]) -> Progress:
    return Progress(**{name: stored[key] for name, key in _PROGRESS_KEYS.items() if key in stored})


def _stored(progress: Progress) -> dict[str, Any]:
    """Without what is as it is at first."""
    fresh = Progress(progress.revision, progress.run_at_ms, progress.look_at_ms)
    return {
        key: getattr(progress, name)
        for name, key in _PROGRESS_KEYS.items()
        if name in ("revision", "run_at_ms", "look_at_ms")
        or getattr(progress, name) != getattr(fresh, name)
    }


def _place(id: str, progress: Progress) -> str:
    return f"parked:{id}" if progress.look_at_ms is None else _due_key(progress.look_at_ms, id)


def _due_key(at_ms: int, id: str) -> str:
    return f"due:{at_ms:013d}:{id}"
