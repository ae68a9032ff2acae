"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replaced_when_done(target: Path) -> Iterator[Path]:
    """Lends a path beside `target` to write to; on success it takes the target's place,
    on disk for good, and on any failure it is removed and the target is as it was.

    Raises OSError if the folder cannot be written.
    """
    part = target.with_name(f".{target.name}.{uuid4().hex[:8]}.part")
    try:
        part.touch()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    try:
        yield part
        sync(part)
        os.replace(part, target)
        sync(target.parent)
    finally:
        for left in target.parent.glob(f"{part.name}*"):  # a database may have a journal too
            left.unlink()


def sync(path: Path) -> None:
    """Has the file or folder on disk before it returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
