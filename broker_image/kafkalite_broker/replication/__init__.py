"""The drivers that carry out what the replication core decides."""
