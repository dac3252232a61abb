"""`kafkalite reassign`."""
