"""Whether a process is still there."""

import subprocess
import sys

from reservation_expiry.infrastructure.machine.processes import is_gone, this_process

NAME_OF_A_CHILD = (
    "from reservation_expiry.infrastructure.machine.processes import this_process; "
    "print(this_process())"
)


def test_this_process_is_there() -> None:
    assert this_process()
    assert not is_gone(this_process())


def test_a_process_that_has_ended_is_gone() -> None:
    named = subprocess.run(
        [sys.executable, "-c", NAME_OF_A_CHILD], capture_output=True, text=True, check=True
    )
    assert is_gone(named.stdout.strip())


def test_a_pid_that_is_used_again_is_not_mistaken() -> None:
    place, _, _ = this_process().rpartition("/")
    assert is_gone(f"{place}/1")


def test_nothing_is_said_of_another_machine_or_container_or_of_no_name() -> None:
    boot, namespace, pid, start = this_process().split("/")
    assert not is_gone(f"another-boot/{namespace}/{pid}/1")
    assert not is_gone(f"{boot}/pid:[1]/{pid}/1")
    assert not is_gone("")
    assert start
