"""One module for each Kafka API that the broker serves."""
