"""What both stores say in SQL, in the words that SQLite and PostgreSQL share.

Statements are written with `?` for values. What the two do not share (how a transaction
begins, how many rows go in at once, the tables' definition) is in `sqlite/` and
`postgres/`, which run these statements; nothing here opens a connection.
"""
