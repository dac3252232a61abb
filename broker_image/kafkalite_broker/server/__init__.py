"""Connections, framing, and the handlers of Kafka's requests."""
