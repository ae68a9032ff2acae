"""Time zones where their data is missing: from the system, or altogether."""

import sys
import zoneinfo
from collections.abc import Iterator
from importlib.metadata import requires

import pytest

from domain.errors import InvalidSchedule
from infrastructure.objects.cron import next_by_cron

NOW = 1_800_000_000_000  # 08:00 UTC


@pytest.fixture
def no_zone_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As with PYTHONTZPATH=/nonexistent and without the package tzdata."""
    monkeypatch.setitem(sys.modules, "tzdata", None)
    yield from without_system_data()


@pytest.fixture
def no_system_data() -> Iterator[None]:
    """As in a slim image, or on Windows."""
    yield from without_system_data()


def without_system_data() -> Iterator[None]:
    zoneinfo.reset_tzpath([])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


def test_f43_utc_needs_no_zone_data(no_zone_data: None) -> None:
    assert next_by_cron("0 9 * * *", "UTC", NOW) == NOW + 3_600_000


def test_f43_another_zone_without_its_data_is_refused_with_a_sentence(no_zone_data: None) -> None:
    with pytest.raises(InvalidSchedule, match="'Europe/Brussels' is not a time zone"):
        next_by_cron("0 9 * * *", "Europe/Brussels", NOW)


def test_f43_a_system_without_zone_data_has_that_of_the_package(no_system_data: None) -> None:
    assert next_by_cron("0 10 * * *", "Europe/Brussels", NOW) == NOW + 3_600_000


def test_f43_the_package_is_installed_with_ours_everywhere() -> None:
    assert any(line.startswith("tzdata>=") for line in requires("reservation-expiry") or [])
