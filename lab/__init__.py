"""The lab: a durable alarm's promise, shown step by step on a real server (`make lab`)."""
