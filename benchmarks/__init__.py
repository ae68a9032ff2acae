"""Benchmarks: this service beside its peers, on the same work, in the same run.

`make bench` runs them; `__main__.py` is the order of things, `scenarios.py` what is
measured, `servers.py` who is measured, `load.py` what makes the load. A figure is a
median of interleaved rounds; what is compared is the ratio.
"""
