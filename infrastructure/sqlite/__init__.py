"""The SQLite store: one file, many processes on one machine, one writer at a time.

`database.py` opens connections and translates driver errors, `schema.py` creates and
migrates the tables, `session.py` holds the statements of the writer's transaction,
`queries.py` those of readers, and `recorder.py` shows the log to `eventsourcing`.
No other part of the project knows SQL.
"""
