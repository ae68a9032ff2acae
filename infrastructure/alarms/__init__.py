"""The alarms: what wakes a reservation or an object when its time has come.

`clock.py` decides when to look, by APScheduler (`scheduler.py`); `dispatcher.py` claims what
is due and has it run; `claims.py` is what that asks of the writer, in transactions;
`company.py` says which alarms are begun together; `log.py` writes a line for each attempt.
Nothing here knows how the log is checked or what objects are.
"""
