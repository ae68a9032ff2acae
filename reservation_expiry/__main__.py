"""Where the command line begins: `reservation-expiry`, or `python -m reservation_expiry`.

Before anything else is imported, so that it is done within milliseconds: what was written on
the command line is shown without its passwords, names are taken as UTF-8, and standard
streams that are closed are stood in for.
"""

import codecs
import os
import sys
from contextlib import suppress

from reservation_expiry.infrastructure.machine.redaction import redacted

NAME = "reservation-expiry"
WARNING = (
    f"{NAME}: a password on the command line can be read by everybody on this machine while the "
    "process starts: give it as RESERVATION_DATABASE, PGPASSWORD, PGPASSFILE or by a service file"
)


def run() -> None:
    """Runs the command line that this process was started with, and exits."""
    _stand_in_for_closed_streams()
    _take_names_as_utf8()
    _hide_passwords()
    from reservation_expiry.api.cli import main

    try:
        main(prog_name=NAME)
    finally:
        _let_go_of_output()


def _stand_in_for_closed_streams() -> None:
    """Else the next file that is opened, the database perhaps, would have the number of one,
    and be written to by whatever prints. What is read or printed there still fails."""
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.__stdout__ = sys.stdout  # type: ignore[misc]  # final, but where Python left it empty
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
        sys.__stderr__ = sys.stderr  # type: ignore[misc]  # as above


def _take_names_as_utf8() -> None:
    """Begins anew in Python's UTF-8 mode where the locale says something else."""
    is_utf8 = codecs.lookup(sys.getfilesystemencoding()).name == "utf-8"
    if not is_utf8 and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def _hide_passwords() -> None:
    """Whoever lists this machine's processes sees no password that was given in a URL, from
    now on; and who gave it hears that it was to be seen until now."""
    shown = [redacted(word) for word in sys.argv]
    if shown != sys.argv:
        from setproctitle import setproctitle

        setproctitle(" ".join(shown))
        with suppress(OSError):
            print(WARNING, file=sys.stderr, flush=True)


def _let_go_of_output() -> None:
    """What could not be written has been told of, or nobody reads it: the interpreter, which
    tries once more when it ends, is to have no trouble with it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":  # processes that the tools start import this module again
    run()
