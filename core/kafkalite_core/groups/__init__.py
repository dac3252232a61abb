"""The consumer-group coordinator (classic protocol): see `coordinator.py` and `events.py`."""
