"""The PostgreSQL store: any number of nodes on one database.

`database.py` opens connections, with every timeout that they have, and translates driver
errors; `schema.py` creates and migrates the tables; `session.py` is the writer's
transaction, the lock on the log and the way out of a commit whose answer was lost;
`arrays.py` writes rows as the server reads them fastest, `reader_pool.py` lends connections for
reading; `clock.py` is the database's clock on a node; `watch.py` listens for other nodes' alarms;
`engine.py` is SQLAlchemy's engine for the job store. The statements are those of `sql/`.
"""
