"""A cluster on one machine: PostgreSQL, three nodes behind HAProxy, and faults one by one."""
