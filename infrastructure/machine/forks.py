"""Connections and a fork: a child must not use its parent's."""

import os
import weakref

from reservation_expiry.infrastructure.errors import ForkedProcess


class RefusesAfterFork:
    """What opens connections, and opens none in a child of the process that made it."""

    def __init__(self) -> None:
        self._forked = False
        reference = weakref.ref(self)

        def mark() -> None:
            opened = reference()
            if opened is not None:
                opened._after_fork_in_child()

        os.register_at_fork(after_in_child=mark)

    def refuse_after_fork(self) -> None:
        """Raises ForkedProcess in a child."""
        if self._forked:
            raise ForkedProcess(
                "this process was forked after the database was opened: "
                "open it again here, after the fork"
            )

    def _after_fork_in_child(self) -> None:
        self._forked = True
