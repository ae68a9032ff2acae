"""The SQLite store: one file, many processes on one machine, one writer at a time.

`database.py` opens connections and translates driver errors, `schema.py` creates and
migrates the tables, `session.py` is the writer's transaction, `engine.py` SQLAlchemy's
engine for the job store, `database_file.py` the file as a whole. The statements are those of
`sql/`.
"""
