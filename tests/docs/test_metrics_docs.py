"""What stands beside the metrics: their reference, the alerts and the dashboard.

One alert is fired for real: a Prometheus scrapes a service whose alarm clock stands still.
"""

import json
import os
import re
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

from docs.make_metrics_reference import reference
from reservation_expiry.api.http import create_app
from reservation_expiry.api.metrics import ADDED_UP, BUILD, OF_DATABASE, PREFIX, READY, UP
from reservation_expiry.infrastructure.application import ReservationApplication
from reservation_expiry.infrastructure.startup import prepare
from tests.support.clock import ManualClock
from tests.support.server import free_port, wait_for

DOCS = Path(__file__).parents[2] / "docs"
RULES = DOCS / "operate" / "alerts.yml"
DASHBOARD = DOCS / "operate" / "grafana-dashboard.json"
PROMETHEUS_YML = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: reservation-expiry
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def find(name: str) -> str:
    found = shutil.which(name, path="/usr/bin:/usr/local/bin")
    if found is None:
        if os.environ.get("CI"):
            raise FileNotFoundError(f"{name} is not installed (Debian: apt-get install prometheus)")
        pytest.skip(f"NOT TESTED: {name} is not installed (Debian: apt-get install prometheus)")
    return found


def names_in(text: str) -> set[str]:
    """Metrics that are asked for, a histogram by its own name."""
    return {
        re.sub(r"(_seconds|_commands)_bucket$", r"\1", name)
        for name in re.findall(rf"\b{PREFIX}\w+", text)
    }


def test_the_reference_of_metrics_is_made_of_the_code() -> None:
    assert (DOCS / "metrics.md").read_text() == reference(), "run `make docs`"


def test_the_dashboard_draws_every_metric_and_the_alerts_ask_for_none_that_is_not_there() -> None:
    there = {metric.full_name for metric in (*ADDED_UP, UP, *OF_DATABASE, READY, BUILD)}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    drawn = names_in(" ".join(target["expr"] for panel in panels for target in panel["targets"]))
    assert drawn == there
    asked = names_in(RULES.read_text())
    assert asked
    assert asked <= there


def test_promtool_finds_the_rules_right() -> None:
    command = [find("promtool"), "check", "rules", str(RULES)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, "SUCCESS" in checked.stdout) == (0, True), checked
    assert RULES.read_text().count("runbook: ") == RULES.read_text().count("- alert: ")


@pytest.fixture
def stopped_clock_port(tmp_path: Path) -> Iterator[int]:
    """A service without an alarm clock, in which a hold has been due for ten minutes."""
    database = tmp_path / "reservations.db"
    prepare(database)
    clock = ManualClock()
    application = ReservationApplication(database, clock)
    application.start(alarms=False)
    application.hold("seat-1", 60)
    clock.advance(660_000)
    server = make_server("127.0.0.1", 0, create_app(application))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        application.stop()


@contextmanager
def prometheus(folder: Path, scraped_port: int) -> Iterator[str]:
    """A Prometheus with our rules, which fire at once. Its URL."""
    program = find("prometheus")
    (folder / "alerts.yml").write_text(re.sub(r"for: \S+", "for: 0s", RULES.read_text()))
    (folder / "prometheus.yml").write_text(PROMETHEUS_YML.format(port=scraped_port))
    port = free_port()
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.txt").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def firing(url: str) -> dict[str, Any]:
    """The annotations of alerts, by name."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=5) as answer:
            alerts = json.load(answer)["data"]["alerts"]
    except OSError:
        return {}  # it is starting
    return {
        alert["labels"]["alertname"]: alert["annotations"]
        for alert in alerts
        if alert["state"] == "firing"
    }


@pytest.mark.real_time
def test_alerts_fire_when_the_alarm_clock_stands_still(
    tmp_path: Path, stopped_clock_port: int
) -> None:
    expected = {
        "ReservationExpiryAlarmsOverdue",
        "ReservationExpiryOldestAlarmTooLate",
        "ReservationExpiryNotReady",
    }
    with prometheus(tmp_path, stopped_clock_port) as url:
        found = wait_for(lambda: f if (f := firing(url)).keys() >= expected else None, 30)
    assert set(found) == expected
    late = found["ReservationExpiryOldestAlarmTooLate"]["summary"]
    assert late == "An alarm has been due for 10m 0s"
