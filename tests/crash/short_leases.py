"""`reservation-expiry` whose claims on alarms last 1 s, or 2 s where a retry would wait so long,
so that a test need not wait for 5."""

import infrastructure.alarm_handler
from api.cli import main

if __name__ == "__main__":
    infrastructure.alarm_handler.LEASE_MS = 1_000
    main()
