"""The invariants, checked as a history runs; each a small class with its theorem."""
