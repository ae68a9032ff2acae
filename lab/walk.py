"""Walks the lab on a scratch database and shows the evidence of each step.

A short and a long hold; the server killed before the short one's deadline and started
again; the expiry path replayed twice by one explicit clock; a restart of unchanged
code; the alarm log; the log verified. Exits 1 if anything is not as promised.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tests.support.server import Server, wait_for

SHORT_TTL_SECONDS = 8
LONG_TTL_SECONDS = 3600
REPLAY_TTL_SECONDS = 180
EXPIRED_WITHIN_SECONDS = 20


class Lab:
    """One walk. `failures` counts what was not as promised."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder)
        self.failures = 0

    def run(self) -> None:
        steps: tuple[Callable[[], None], ...] = (
            self.hold,
            self.kill_and_restart,
            self.expired_once,
            self.replay_twice,
            self.restart_unchanged,
            self.read_the_alarm_log,
            self.verify_the_log,
        )
        for number, step in enumerate(steps, start=1):
            click.secho(f"\n{number}. {step.__doc__}", bold=True)
            step()

    def hold(self) -> None:
        """Hold one reservation for seconds, another for an hour"""
        self.server.start()
        self.short = self.show(self.server.hold("local-expiring", SHORT_TTL_SECONDS))
        self.long = self.show(self.server.hold("local-safe", LONG_TTL_SECONDS))
        for state in (self.short, self.long):
            self.check(
                f"{state['reservationId']} is held and has its alarm",
                (state["status"], state["expirationCount"], state["alarmAt"])
                == ("held", 0, state["expiresAt"]),
            )

    def kill_and_restart(self) -> None:
        """Kill every process of the server before the deadline, start it again"""
        self.server.kill()
        self.check("it died before the deadline", time.time() * 1000 < self.short["expiresAt"])
        self.server.start()
        self.check(
            "the hold outlived the server", self.server.state("local-expiring") == self.short
        )

    def expired_once(self) -> None:
        """Wait: nobody calls, and the short hold ends by itself"""
        wait_for(lambda: time.time() * 1000 > self.short["expiresAt"], EXPIRED_WITHIN_SECONDS)
        self.ended = wait_for(self._ended, EXPIRED_WITHIN_SECONDS)
        self.show(self.ended)
        late_ms = self.ended["expiredAt"] - self.short["expiresAt"]
        self.check(f"expired, {late_ms} ms after its deadline, never before", late_ms >= 0)
        self.check("exactly once", self.ended["expirationCount"] == 1)
        self.check("its alarm is null", self.ended["alarmAt"] is None)
        self.check("the long hold is untouched", self.server.state("local-safe") == self.long)

    def _ended(self) -> Any:
        state = self.server.state("local-expiring")
        return state if state["status"] == "expired" else None

    def replay_twice(self) -> None:
        """Take the expiry path twice by one clock, just past the deadline"""
        held = self.server.hold("replay-proof", REPLAY_TTL_SECONDS)
        path, body = "/reservations/replay-proof/replay-alarm", {"now": held["expiresAt"] + 1}
        first = self.show(self.server.post(path, body).json())
        second = self.show(self.server.post(path, body).json())
        self.check("the first changed it", first["changed"] is True)
        self.check("the second did not", second["changed"] is False)
        self.check(
            "both say expired, count 1",
            all((r["status"], r["expirationCount"]) == ("expired", 1) for r in (first, second)),
        )

    def restart_unchanged(self) -> None:
        """Stop it properly, start the same code again"""
        self.check("it drained and exited 0", self.server.stop() == 0)
        self.server.start()
        self.check("the expired one is as it was", self._ended() == self.ended)
        self.check("the held one is as it was", self.server.state("local-safe") == self.long)

    def read_the_alarm_log(self) -> None:
        """Read what the alarm log says of it"""
        lines = [
            line for line in self.server.alarm_lines() if line["reservationId"] == "local-expiring"
        ]
        for line in lines:
            self.show(line)
        self.check("one attempt, outcome ok", [line["outcome"] for line in lines] == ["ok"])

    def verify_the_log(self) -> None:
        """Verify the log and everything projected from it"""
        command = [sys.executable, "-m", "reservation_expiry", "log", "verify", "--database"]
        done = subprocess.run(
            [*command, str(self.server.database)], capture_output=True, text=True, check=False
        )
        click.echo(f"   {done.stdout.strip()}{done.stderr.strip()}")
        self.check("no difference", done.returncode == 0)

    def show(self, value: Any) -> Any:
        click.echo(f"   {json.dumps(value)}")
        return value

    def check(self, sentence: str, holds: bool) -> None:
        self.failures += not holds
        mark = click.style("ok", fg="green") if holds else click.style("NOT SO", fg="red")
        click.echo(f"   {mark}  {sentence}")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="reservation-lab-"))
    lab = Lab(folder)
    try:
        lab.run()
    except AssertionError as error:
        lab.check(str(error), holds=False)
    finally:
        lab.server.ensure_gone()
        shutil.rmtree(folder)
        click.echo(f"\ncleaned up {folder.name}")
    if lab.failures:
        click.secho(f"{lab.failures} not as promised", fg="red")
        sys.exit(1)
    click.secho("all as promised", fg="green")


if __name__ == "__main__":
    main()
