"""The world: the event store, the alarm clock, the read model, and what ties them together.

This room does the I/O that the rules in `domain/` must not do. It knows nothing of HTTP
or of a command line. Only `alarms/scheduler.py` imports apscheduler, and only `stores/` knows SQL.

Start with `application.py`: one class, one method per thing a caller may ask for. A
command's way from there: `writer.py` (one thread, one transaction for all that waits),
`commands.py`, `unit_of_work.py` (what that transaction will write), `stores/` (one interface
over SQLite and PostgreSQL). Beside it are `alarms/`, `objects/` (people's own objects) and
`replay/` (the log's tools); `machine/` is what all of them stand on.
"""
