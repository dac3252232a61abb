"""Spark jobs over committed records."""
