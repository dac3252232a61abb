"""The operator process: kopf's watches -> snapshot -> plan (core) -> compare-and-swap."""
