"""The rules of KafkaLite, without I/O, clock or randomness."""
