"""The log's tools: what is checked, rebuilt, compared and copied by replaying the log.

`verify.py` and `rebuild.py` hold the projections against the log by `comparison.py` and
`object_comparison.py`; `diff.py` explains one history; `transfer.py` exports and imports,
`backup.py` moves whole databases. `remake.py` replaces a damaged table beside a server.
"""
