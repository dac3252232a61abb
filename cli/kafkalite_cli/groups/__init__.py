"""`kafkalite groups`: consumer groups over the Kafka protocol."""
