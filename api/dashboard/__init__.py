"""The dashboard: pages that show the service to people, and any hold at any moment of its
history. Drawn by the server; the one script only makes them livelier.
"""
