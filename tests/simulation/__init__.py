"""Whole clusters of the production core in virtual time, seeded and replayable."""
