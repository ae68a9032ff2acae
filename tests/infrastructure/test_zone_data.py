"""Time zones where their data is missing: from the system, or altogether."""

from importlib.metadata import requires

import pytest

from reservation_expiry.domain.errors import InvalidSchedule
from reservation_expiry.infrastructure.objects.cron import next_by_cron
from tests.support.zones import without_any, without_the_systems

NOW = 1_800_000_000_000  # 08:00 UTC


def test_f43_utc_needs_no_zone_data() -> None:
    with without_any():
        assert next_by_cron("0 9 * * *", "UTC", NOW) == NOW + 3_600_000


def test_f43_another_zone_without_its_data_is_refused_with_a_sentence() -> None:
    with without_any(), pytest.raises(InvalidSchedule, match="'Europe/Brussels' is not a time"):
        next_by_cron("0 9 * * *", "Europe/Brussels", NOW)


def test_f43_a_system_without_zone_data_has_that_of_the_package() -> None:
    with without_the_systems():
        assert next_by_cron("0 10 * * *", "Europe/Brussels", NOW) == NOW + 3_600_000


def test_f43_the_package_is_installed_with_ours_everywhere() -> None:
    assert any(line.startswith("tzdata>=") for line in requires("reservation-expiry") or [])
