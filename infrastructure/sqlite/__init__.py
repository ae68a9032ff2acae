"""The SQLite store: one file, many processes on one machine, one writer at a time.

`database.py` opens connections and translates driver errors, `schema.py` creates and
migrates the tables, `session.py` holds the statements of the writer's transaction,
`queries.py` those of readers, `chunks.py` and `snapshot.py` the long reads of the replay
tools, `engine.py` SQLAlchemy's for the job store, `whole_file.py` the file as a whole.
No other part of the project knows SQL.
"""
