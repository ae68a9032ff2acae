"""Who acts: the token's name that came with the request that is being answered.

It goes where the code goes, into threads that are handed the context and tasks that are made
in it. Commands of callers take it when they are made; the service's own work has none.
"""

from contextvars import ContextVar

acting: ContextVar[str | None] = ContextVar("acting", default=None)
