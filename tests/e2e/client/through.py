"""Writes records to every partition of a topic, and reads them back: through.py BOOTSTRAP TOPIC COUNT

Says as JSON which addresses of brokers it was told, how many records each partition has acknowledged, and how many of these
were read.
"""

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

LIMIT_S = 60
# A connection from before kube-proxy knew the Service leads nowhere, and by default it is tried for 30 s.
SOON = {"socket.connection.setup.timeout.ms": 5_000}
bootstrap, topic, count = sys.argv[1:]
errors, acknowledged = [], {}


def delivered(error, message):
    if error is not None:
        errors.append(str(error))
    else:
        acknowledged.setdefault(message.partition(), set()).add((message.offset(), message.value()))


producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **SOON})
metadata = producer.list_topics(topic, LIMIT_S)
for partition in metadata.topics[topic].partitions:
    for number in range(int(count)):
        producer.produce(topic, value=f"{bootstrap} {partition} {number}", partition=partition, on_delivery=delivered)
if waiting := producer.flush(LIMIT_S):
    errors.append(f"{waiting} records were not acknowledged within {LIMIT_S} s")

consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "through", "enable.auto.commit": False, **SOON})
consumer.assign([TopicPartition(topic, number, min(records)[0]) for number, records in acknowledged.items()])
left = {number: set(records) for number, records in acknowledged.items()}
deadline = time.monotonic() + LIMIT_S
while any(left.values()) and time.monotonic() < deadline:
    for message in consumer.consume(1000, 0.5):
        if message.error() is None:
            left[message.partition()].discard((message.offset(), message.value()))
consumer.close()
told = {
    "brokers": {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()},
    "acknowledged": {number: len(records) for number, records in acknowledged.items()},
    "read": {number: len(records) - len(left[number]) for number, records in acknowledged.items()},
    "errors": errors,
}
print(json.dumps(told))
