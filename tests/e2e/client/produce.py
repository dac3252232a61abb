"""Produces numbered records, each awaited by nobody, until standard input ends: produce.py BOOTSTRAP TOPIC PREFIX

Says `first` when the first is acknowledged, and at the end which were, and what went wrong with others, as JSON.
"""

import json
import sys
import threading

from confluent_kafka import Producer

# A connection from before kube-proxy knew the Service leads nowhere, and by default it is tried for 30 s.
SOON = {"socket.connection.setup.timeout.ms": 5_000}
# The topic is there, but brokers that cannot reach the API server hear of it when they do.
PATIENT = {"topic.metadata.propagation.max.ms": 120_000}
bootstrap, topic, prefix = sys.argv[1:]
acknowledged, failed = [], []
finished = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), finished.set()), daemon=True).start()


def delivered(error, message):
    if error is not None:
        failed.append(str(error))
        return
    if not acknowledged:
        print("first", flush=True)
    acknowledged.append(message.value().decode())


producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **SOON, **PATIENT})
number = 0
while not finished.is_set():
    producer.produce(topic, value=f"{prefix}-{number}", on_delivery=delivered)
    number += 1
    producer.poll(0.005)
producer.flush(60)
print(json.dumps({"sent": number, "acknowledged": acknowledged, "failed": failed}), flush=True)
