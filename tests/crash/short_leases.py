"""`reservation-expiry` whose claims on alarms last 1 s, or 2 s where a retry would wait so long,
so that a test need not wait for 5."""

import reservation_expiry.infrastructure.alarms.dispatcher
from reservation_expiry.api.cli import main

if __name__ == "__main__":
    reservation_expiry.infrastructure.alarms.dispatcher.LEASE_MS = 1_000
    main()
