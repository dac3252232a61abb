"""The operator process."""
