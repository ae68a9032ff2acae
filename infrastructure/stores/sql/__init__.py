"""The statements that both stores run.

They are written for SQLite, with `?` for values; the PostgreSQL store replaces what it
spells otherwise (`?`, `AS BLOB`, `NOT INDEXED`). What the two do not share (how a
transaction begins, how many rows go in at once, the tables' definition) is in `sqlite/` and
`postgres/`; nothing here opens a connection.
"""
