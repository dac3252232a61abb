"""The nouns of KafkaLite: identifiers, limits, errors, configuration, partitions, brokers, clusters."""
