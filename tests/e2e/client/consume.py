"""Reads a topic from its beginning to its present end and prints the values as JSON: consume.py BOOTSTRAP TOPIC"""

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

# A connection from before kube-proxy knew the Service leads nowhere, and by default it is tried for 30 s.
SOON = {"socket.connection.setup.timeout.ms": 5_000}
bootstrap, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "e2e", "enable.auto.commit": False, **SOON})
partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic, 30).topics[topic].partitions]
ends = {partition.partition: consumer.get_watermark_offsets(partition, 30)[1] for partition in partitions}
consumer.assign(partitions)
values = []
left = {number for number, end in ends.items() if end > 0}
deadline = time.monotonic() + 60
while left:
    if time.monotonic() > deadline:
        sys.exit(f"partitions {left} of {ends} were not read to their ends within 60 s")
    for message in consumer.consume(1000, 0.5):
        if message.error() is None:
            values.append(message.value().decode())
            if message.offset() + 1 >= ends[message.partition()]:
                left.discard(message.partition())
consumer.close()
print(json.dumps(values))
