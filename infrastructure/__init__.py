"""The world: the event store, the alarm clock, the read model, and what ties them together.

This room does the I/O that the rules in `domain/` must not do. It knows nothing of HTTP
or of a command line. Only `alarm_clock.py` imports apscheduler, and only the modules
under `sql/`, `sqlite/` and `postgres/` know SQL.

Start with `application.py`: one class, one method per thing a caller may ask for. A
command's way from there: `writer.py` (one thread, one transaction for all that waits),
`unit_of_work.py` (what that transaction will write), `store.py` (one interface over
`sqlite/` and `postgres/`), `sql/` (the statements that both run).
"""
