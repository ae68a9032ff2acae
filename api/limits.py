"""What one client, or a thousand, may take of a serving process: every limit of the door.

A connection costs memory only, for a limited time, whatever it does or leaves undone; what
costs more than that (a thread, a large body, a large answer) is rationed, so that health,
reads and holds of others always find a place. docs/guarantees.md lists these for operators.
"""

CONNECTIONS = 10_000  # open at once, as far as the process may open files; more are told 503
TARGET_BYTES = 64 * 1024  # of a request's target, beyond which it is told 414
HEAD_BYTES = 128 * 1024  # of a request's target and headers, beyond which it is told 431

HEAD_SECONDS = 10.0  # for the first request of a connection, or the rest of one begun, to come
IDLE_SECONDS = 75.0  # between requests; more than the 60 s for which nginx keeps a connection
BODY_SECONDS = 20.0  # for a whole body to come, beyond which it is told 408
LAST_CHANCE_SECONDS = 1.0  # to ask, for who has connected just before the process drains
LINGER_SECONDS = 5.0  # for which a body that is refused is taken, for its sender to hear so
STALL_SECONDS = 30.0  # for an answer that its reader takes nothing of

LARGE_BYTES = 64 * 1024  # a body or an answer that is larger is rationed:
LARGE_BODIES = 4  # read at once; others wait for a place, within BODY_SECONDS
LARGE_BODIES_WAITING = 64  # beyond which they are told 503
UNREAD_BYTES = 64 * 1024 * 1024  # of answers that nobody has taken, beyond which pages are 503

STREAMS = 1_000  # of events, open at once; more are told 503
STREAM_BYTES = 1024 * 1024  # that wait for the reader of one, beyond which it is cut off

THREADS = 12  # for what goes through Flask
WAITING_FOR_THREADS = 200  # requests, beyond which they are told 503
PAGE_THREADS = 4  # of their own for pages of a hundred and more, which take long to write
PAGES_WAITING = 50
SCRAPES_WAITING = 4
DASHBOARD_THREADS = 4  # of their own for the dashboard's pages, some of which count for seconds
DASHBOARD_WAITING = 50
READINESS_SECONDS = 2.0  # for the database to answer /readyz
"""Longer means "not ready", whatever the answer."""
