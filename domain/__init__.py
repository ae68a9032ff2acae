"""The rules: what a reservation is, and what may happen to it.

Every function here depends on its arguments alone. A decision takes the state, what is
asked for and the time (`now_ms`), and returns new events or raises a domain error;
applying an event of the log never fails. There is no I/O, no thread and no clock in this
room, and it imports neither of the other two.

Start with `reservation.py`; the facts it records are in `events.py`, what it refuses
in `errors.py`, and how often an alarm is tried in `alarm.py`.
"""
