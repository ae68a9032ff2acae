"""What `completion` prints does complete, in a real shell where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from reservation_expiry.api.cli import main

ASK = """
eval "$(reservation-expiry completion bash)"
for line in "$@"; do
    COMP_WORDS=($line) COMP_CWORD=$(($(wc -w <<< "$line") - 1)) COMPREPLY=()
    _reservation_expiry_completion reservation-expiry
    echo "${COMPREPLY[*]}"
done
"""


@pytest.mark.real_time
def test_bash_completes_commands_their_commands_options_and_values() -> None:
    lines = {
        "reservation-expiry ser": "serve",
        "reservation-expiry log ver": "verify",
        "reservation-expiry serve --work": "--workers",
        "reservation-expiry completion ": "bash fish zsh",
    }
    asked = [line if line[-1] != " " else f"{line}''" for line in lines]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", ASK, "bash", *asked],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stderr, ran.stdout.splitlines()) == ("", list(lines.values()))


@pytest.mark.parametrize(
    ("shell", "registers"),
    [
        ("bash", "complete -o nosort -F _reservation_expiry_completion reservation-expiry"),
        ("zsh", "compdef _reservation_expiry_completion reservation-expiry"),
        ("fish", "complete --no-files --command reservation-expiry"),
    ],
)
def test_each_shell_has_its_script(shell: str, registers: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert registers in result.stdout
    assert "_RESERVATION_EXPIRY_COMPLETE=" in result.stdout


def test_a_shell_that_there_is_no_script_for_is_refused_with_those_that_there_are() -> None:
    result = CliRunner().invoke(main, ["completion", "tcsh"])
    assert (result.exit_code, "'bash', 'fish', 'zsh'" in result.stderr) == (2, True), result.stderr
