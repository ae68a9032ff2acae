"""`python -m api` is `reservation-expiry`."""

from api.cli import main

main(prog_name="reservation-expiry")
