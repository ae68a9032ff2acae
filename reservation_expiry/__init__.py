"""Reservations that end by themselves."""
