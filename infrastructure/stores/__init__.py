"""The stores: one interface, `store.py`, over SQLite and PostgreSQL.

Nothing above this room knows SQL, and what serves does not know which store it has; only
what moves whole databases (`replay/backup.py`, `startup.py`) asks whether an address is a
file. `address.py` says where a
database is, `opening.py` opens one that is there, `row_types.py` has the shapes of rows.
`sql/` has what both share, `sqlite/` and `postgres/` what is their own. Stores know nothing
of alarms, objects or the log's tools.
"""
