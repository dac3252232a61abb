"""Decisions about a log over a `Disk` port: segments, epochs, producers, flushing, recovery, retention, identity."""
