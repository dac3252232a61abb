"""Makes the codec in `kafkalite_core.protocol.generated` from the tables in `kafkalite_core.protocol.schema`."""
