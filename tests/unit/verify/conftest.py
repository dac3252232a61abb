"""Brokers for the clients of a run."""

import pytest
from confluent_kafka import Producer


@pytest.fixture
def mock_bootstrap():
    """A cluster of three inside librdkafka; it lives as long as the producer that made it."""
    owner = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "ignored", "log_level": 0})
    metadata = owner.list_topics(timeout=10)
    owner.list_topics("load", timeout=10)  # the mock makes the topic, with four partitions
    yield ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    owner.flush(0)
