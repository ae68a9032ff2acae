"""The one place that writes files for people, and makes folders.

A regular file appears whole or not at all, readable for its owner alone; one that is there is
replaced only where that was asked for, keeps its mode and owner, and a link to it stays a
link. What is no regular file, a device or a pipe, is written to.

What is being written is in a part beside the target, locked while its writer lives: a part
that can be locked is one that a killed process has left, and goes at the next run.
"""

import errno
import fcntl
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from reservation_expiry.domain.errors import ReservationExpiryError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
NAME_BYTES = 200  # of a target's name in its part's: a name has 255 at most
# What SQLite may have put beside a part that is a database.
BESIDE_DATABASE = ("", "-journal", "-wal", "-shm")

_STREAM = re.compile(r"/dev/(?:fd/(\d+)|std(?:in|(out)|(err)))|/proc/(?:self|\d+)/fd/(\d+)")

logger = logging.getLogger(__name__)


class FileRefused(ReservationExpiryError):
    """A file must not be written, for what is there is not to be replaced."""

    code = "file-refused"


@contextmanager
def opened_for_writing(
    target: Path, is_ours: Callable[[Path], bool], *, force: bool = False
) -> Iterator[BinaryIO]:
    """Lends what is written to `target`, which appears when all has gone well.

    A file that is there is replaced with `force` only, and never if it is not `is_ours`; an
    empty one is as good as none. Raises FileRefused, and OSError, with the target's name.
    """
    with _errors_name(target):
        stream = _stream_at(target)
        if stream is not None:
            with os.fdopen(os.dup(stream), "wb") as file:
                yield file
        elif target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
        else:
            real = real_target(target)
            _refuse_replacing(real, is_ours, force)
            with part_beside(real) as part:
                with part.open("wb") as file:
                    yield file
                _take_place(part, real)


def real_target(target: Path) -> Path:
    """Where the links lead from there: what is put in their place would leave them behind."""
    return Path(os.path.realpath(target))


@contextmanager
def part_beside(target: Path) -> Iterator[Path]:
    """Lends a new, empty file beside `target` to write to, and removes it in the end, with
    what SQLite may have put beside it. Parts that killed writers left are removed first.

    Raises OSError if the folder cannot be written.
    """
    sweep(target)
    with _errors_name(target):
        part, lock = _made_part(target)
    try:
        yield part
    finally:
        for suffix in BESIDE_DATABASE:
            Path(f"{part}{suffix}").unlink(missing_ok=True)
        os.close(lock)


def take_new_place(part: Path, target: Path) -> None:
    """Puts the part where nothing is, on disk for good. Raises FileExistsError if something
    is there by now, and leaves it alone."""
    sync(part)
    try:
        os.link(part, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        os.replace(part, target)
    sync(target.parent)


def sweep(target: Path) -> None:
    """Removes, and names, what killed writers of this file have left beside it."""
    for left in _parts_of(target):
        with suppress(OSError):  # somebody else's, or just gone
            lock = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for suffix in BESIDE_DATABASE:
                    Path(f"{left}{suffix}").unlink(missing_ok=True)
                logger.warning("removed %s, which a killed process had left", left)
            finally:
                os.close(lock)


def make_private(path: Path) -> None:
    """Makes an empty file for its owner alone, whatever the umask is, unless there is one."""
    with suppress(FileExistsError):
        os.close(_created(real_target(path)))


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, for their owner alone, unless it is there."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):  # made by another process just now
            one.mkdir()
            one.chmod(FOLDER_MODE)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def open_to_others(path: Path) -> Iterator[str]:
    """What others than its owner may do with a file, in sentences for its operator."""
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield f"other accounts may use {path}, whose mode is {mode:04o}: chmod 600 it"
        folder = path.absolute().parent
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o022 and not mode & stat.S_ISVTX:
            yield f"other accounts may replace files in {folder}, whose mode is {mode:04o}"


def sync(path: Path) -> None:
    """Has the file or folder on disk before it returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stream_at(target: Path) -> int | None:
    """The descriptor that /dev/stdout and the like mean. To open such a name again would
    begin at the start of what it leads to, and to replace it would do so beside that."""
    path = Path(os.path.abspath(target))
    for _ in range(40):  # as many links as the kernel follows
        found = _STREAM.fullmatch(str(path))
        if found is not None:
            number, out, err, other = found.groups()
            return 1 if out else 2 if err else int(number or other or 0)
        if not path.is_symlink():
            return None
        path = Path(os.path.abspath(path.parent / path.readlink()))
    return None


def _refuse_replacing(real: Path, is_ours: Callable[[Path], bool], force: bool) -> None:
    if not real.exists() or real.stat().st_size == 0:
        return
    if not is_ours(real):
        raise FileRefused(
            f"{real} is a file of something else and stays as it is: use another name"
        )
    if not force:
        raise FileRefused(f"{real} is there already: --force replaces it")


def _take_place(part: Path, target: Path) -> None:
    try:
        old = target.stat()
    except FileNotFoundError:
        try:
            take_new_place(part, target)
        except FileExistsError:
            raise FileRefused(f"{target} was made by another process meanwhile") from None
        return
    mode = stat.S_IMODE(old.st_mode)
    try:
        os.chown(part, old.st_uid, old.st_gid)
    except PermissionError:
        mode &= 0o700  # it is now another account's, whose group may be another, too
    part.chmod(mode)
    sync(part)
    os.replace(part, target)
    sync(target.parent)


def _made_part(target: Path) -> tuple[Path, int]:
    """A new part, and the descriptor that keeps it locked."""
    while True:
        part = target.with_name(f".{_stem(target)}.{uuid4().hex[:8]}.part")
        lock = _created(part)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:  # else somebody swept it before it was locked
            return part, lock
        os.close(lock)


def _created(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def _stem(target: Path) -> str:
    return os.fsencode(target.name)[:NAME_BYTES].decode(errors="ignore")


def _parts_of(target: Path) -> Iterator[Path]:
    pattern = re.compile(rf"\.{re.escape(_stem(target))}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):
        names = os.listdir(target.parent)
        yield from (target.parent / name for name in names if pattern.fullmatch(name))


@contextmanager
def _errors_name(target: Path) -> Iterator[None]:
    """The system names no file, or the part, where writing fails."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(".part"):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
