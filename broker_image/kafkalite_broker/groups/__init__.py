"""Consumer groups on this broker: one coordinator for each partition of `__consumer_offsets` that it leads."""
