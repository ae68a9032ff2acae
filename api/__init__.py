"""The ways in: HTTP, the command line, and the server that runs them.

A route or command parses, calls the application and renders; it decides nothing. Only
this room imports flask, click and uvicorn.

Start with `http.py` (the app and its routes) or `cli/` (the commands).
"""
