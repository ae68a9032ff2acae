"""The rules: what a reservation is, and what may happen to it.

A decision takes (state, command, now_ms) and returns new events or raises a domain error;
applying an event never fails. There is no I/O, no thread and no clock in this room, and it
imports neither of the other two. All values are immutable but one: `StoredObject` is written
into as its events are applied, for a copy of its storage for each would cost more than all
the rest.

Start with `reservation.py`; the facts it records are in `events.py`, what it refuses in
`errors.py`, ids in `ids.py`. An alarm's attempts are `alarm_slot.py`, how often it is tried
`alarm.py`. Objects are in `durable_object.py`, the entries of a schedule in
`scheduled_entry.py`, what may be scheduled in `schedule.py`.
"""
