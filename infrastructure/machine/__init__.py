"""What the machine gives us: files, processes, standard streams.

Nothing here knows of reservations.
"""
