"""The rules: what a reservation is, and what may happen to it.

Everything here is pure. A decision takes (state, command, now_ms) and returns new
events or raises a domain error; applying an event never fails. There is no I/O, no
thread and no clock in this room, and it imports neither of the other two.

Start with `reservation.py`; the facts it records are in `events.py`, what it refuses
in `errors.py`, and how often an alarm is tried in `alarm.py`.
"""
