"""Durable objects: people's own classes, run on the same log and the same alarm clock.

- `durable_object.py` has what a class is written against: the base class, its context,
  the alarm's info; `storage.py` what it keeps things with; `values.py` what can be kept.
- `live_object.py` is one object in memory. Its parts: `memory.py` (storage and alarm),
  `outbox.py` (the way into the log), `tasks.py` (what runs), `transaction.py`;
  `running_code.py` knows whose code runs.
- `host.py` is the process: it takes calls and tends the lease. `residents.py` finds, makes
  and lets go of its objects; `ownership.py` sees to it that no other process runs them;
  `alarms.py` runs their alarms, `alarm_crowd.py` knows how many.
- `event_schedule.py` is a class that is there for everybody: many events on one alarm. A
  pass over them is in `schedule_pass.py`, how they are kept in `schedule_records.py`, when they
  run in `domain/scheduled_entry.py`; `cron.py` reads expressions for that.
- `object_commands.py` is what they ask of the writer; `checkpoint_cadence.py` says when
  their storage is written down whole.

The modules need one another in one direction; where a part calls back, a small protocol
beside it says what for.
"""
