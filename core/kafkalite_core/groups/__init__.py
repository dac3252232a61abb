"""The consumer-group coordinator: empty until the broker serves groups."""
