"""The stores: one interface, `store.py`, over SQLite and PostgreSQL.

Nothing above this room knows SQL or which of the two it has. `address.py` says where a
database is, `opening.py` opens one that is there, `row_types.py` has the shapes of rows.
`sql/` has what both share, `sqlite/` and `postgres/` what is their own. Stores know nothing
of alarms, objects or the log's tools.
"""
