"""Time zone data that is not there: the system's, or any at all."""

import sys
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def without_the_systems() -> Iterator[None]:
    zoneinfo.reset_tzpath([])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        yield
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


@contextmanager
def without_any() -> Iterator[None]:
    """As with PYTHONTZPATH=/nonexistent and without the package tzdata."""
    with pytest.MonkeyPatch.context() as patch, without_the_systems():
        for name in {"tzdata", *(name for name in sys.modules if name.startswith("tzdata."))}:
            patch.setitem(sys.modules, name, None)
        yield
