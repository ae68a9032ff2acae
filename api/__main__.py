"""`python -m api` is `reservation-expiry`."""

from api.cli import main

if __name__ == "__main__":  # processes that the tools start import this module again
    main(prog_name="reservation-expiry")
