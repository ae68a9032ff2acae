"""A cluster on one machine: PostgreSQL, three nodes, nginx in front, and what befalls them."""
