"""The broker process: Kafka's protocol in front, the replication core in the middle, the log below."""
