"""The Kafka wire protocol: primitives, one module per API, headers, record batches, error codes."""
