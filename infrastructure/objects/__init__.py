"""Durable objects: people's own classes, run on the same log and the same alarm clock.

- `durable_object.py` has what a class is written against: the base class, its context,
  the alarm's info; `storage.py` what it keeps things with; `values.py` what can be kept.
- `live_object.py` is one object in memory, and how its writes reach the log; `tasks.py`
  what runs of it, `running_code.py` whose code that is, `transaction.py` its transactions.
- `host.py` finds, makes, runs and drops the objects of one process; `ownership.py` sees
  to it that no other process runs them; `alarms.py` runs their alarms, `alarm_crowd.py`
  knows how many.
- `event_schedule.py` is a class that is there for everybody: many events on one alarm. A
  pass over them is in `schedule_pass.py`, how they are kept in `schedule_records.py`.
- `object_commands.py` is what they ask of the writer; `snapshot_cadence.py` what
  follows from their events; `object_comparison.py` checks it.
"""
